// SPDX-License-Identifier: Apache-2.0
// From a recorded run to a variant: measured, planned, and compared with the run.
#include <algorithm>
#include <cstring>
#include <utility>

#include "remat/core/error.h"
#include "remat/core/moves.h"
#include "remat/core/rewrite.h"
#include "remat/core/simulate.h"
#include "remat/libtorch/device.h"
#include "remat/libtorch/measure.h"
#include "remat/libtorch/op_traits.h"
#include "remat/libtorch/packed_values.h"
#include "remat/libtorch/saved_plan.h"
#include "remat/libtorch/tensor_view.h"
#include "remat/libtorch/variant.h"
#include "remat/libtorch/written_copies.h"

namespace remat::detail {
namespace {

// Measuring takes no longer than so many plain steps (and never fewer than its least rounds).
constexpr double kMeasuredSteps = 4;
// A first plan, from the times of one run, takes at least so long, and at most as long as the step.
constexpr double kQuickPlanSeconds = 0.25;
constexpr int64_t kNotAsked = -1;  // for the budget, which is asked for once

double seconds_since(int64_t start_ns) {
  return static_cast<double>(cpu_device().now_ns() - start_ns) / 1e9;
}

// Turns one recorded run into a variant, and leaves everything as that run did.
class Adoption {
 public:
  Adoption(Recorder& recorder, const StepOptions& options, const std::optional<ChannelModel>& channel,
           ChannelLoss channel_failed, ArenaSource arena, const std::vector<std::unique_ptr<Variant>>& known,
           int64_t memory_limit)
      : recorder_(recorder),
        options_(options),
        channel_(channel),
        channel_failed_(std::move(channel_failed)),
        arena_(std::move(arena)),
        known_(known),
        memory_limit_(memory_limit) {}

  std::unique_ptr<Variant> run() {
    make_graph(/*tiles=*/true);
    if (take_saved_plan(*variant_, options_)) {
      forget_tensors();
      return std::move(variant_);
    }
    std::optional<WrittenCopies> before;
    try {
      if (can_be_repeated()) {
        recorder_.put_back();
        before.emplace(recorder_);
        try {
          measure_plan_and_compare(*before);
        } catch (const OtherBits&) {
          if (!has_tiles()) {
            throw;
          }
          // A library of kernels may round a part of a matrix otherwise than the whole.
          before->restore();
          recorder_.check_pool();
          make_graph(/*tiles=*/false);
          measure_plan_and_compare(*before);
        }
      } else {
        make_plan(options_.plan_seconds);
      }
    } catch (...) {
      // The recorder keeps it, for put_back.
      const std::vector<StorageNumber> lost = before ? before->restore() : std::vector<StorageNumber>();
      recorder_.put_forward();
      std::ranges::for_each(lost, [&](StorageNumber each) { recorder_.lose(each); });
      throw;
    }
    recorder_.put_forward();
    forget_tensors();
    return std::move(variant_);
  }

 private:
  struct OtherBits : Error {
    using Error::Error;
  };

  bool has_tiles() const {
    return std::ranges::any_of(variant_->made.part_of, &OpPart::is_tile);
  }

  void make_graph(bool tiles) {
    variant_ = std::make_unique<Variant>();
    variant_->trace = recorder_.trace;
    for (size_t i = 0; i < variant_->trace.ops.size(); ++i) {
      if (variant_->trace.ops[i].kind != CallKind::access) {
        variant_->program.push_back(i);
      }
    }
    std::vector<StorageNumber> outputs;
    for (size_t i = 0; i < variant_->trace.storages.size(); ++i) {
      if (variant_->trace.storages[i].output) {
        outputs.push_back(static_cast<StorageNumber>(i));
      }
    }
    variant_->made = to_graph(variant_->trace, outputs, tiles);
    variant_->made.recording.graph.channel = channel_;
    if (options_.pack) {
      find_packed_values(variant_->made.recording);
    }
    add_moves(variant_->made.recording.graph);
    variant_->graph = variant_->recording().graph;
    if (whole_budget_bytes_ == kNotAsked) {
      whole_budget_bytes_ = options_.budget_of ? options_.budget_of(variant_->graph) : options_.budget_bytes;
      budget_bytes_ = std::min(whole_budget_bytes_, memory_limit_);
    }
    variant_->whole_budget_bytes = whole_budget_bytes_;
    variant_->least_planned_bytes = least_planned_bytes_;
    variant_->report.budget_bytes = budget_bytes_;
  }

  // Until every move of the plan works on the values that are there.
  void measure_plan_and_compare(const WrittenCopies& before) {
    for (;;) {
      try {
        return try_to_plan(before);
      } catch (const MoveFailed& failed) {
        before.restore();
        variant_->do_without(failed);
        if (!failed.packed_form) {
          channel_.reset();
          channel_failed_(failed);
        }
        if (options_.notice) {
          options_.notice(notice_of(failed));
        }
      }
    }
  }

  // A step that takes long is planned quickly, from the times of the recorded run.
  void try_to_plan(const WrittenCopies& before) {
    if (plain_seconds() >= options_.background_plan_seconds) {
      make_first_plan();
      compare(/*timed=*/true);
      leave_to_improve();
    } else {
      measure_ops(before);
      make_plan(options_.plan_seconds);
      compare(/*timed=*/false);
    }
  }

  // An op that nobody knows may do something to the world, and must not be tried out.
  bool can_be_repeated() const {
    return recorder_.repeatable() && std::ranges::none_of(variant_->trace.ops, [](const SeenOp& op) {
      return op.computes() && traits_of(op.op).foreign;
    });
  }

  void bind(Runner& runner) const {
    for (size_t i = 0; i < variant_->trace.storages.size(); ++i) {
      const SeenStorage& storage = variant_->trace.storages[i];
      if (storage.external) {
        auto* bytes = static_cast<char*>(const_cast<void*>(recorder_.held[i].data()));
        runner.bind(variant_->made.id_of[i], bytes + storage.base_bytes);
      }
    }
  }

  double plain_seconds() const {
    double seconds = 0;
    for (const SeenOp& op : variant_->trace.ops) {
      seconds += static_cast<double>(op.time_ns) / 1e9;
    }
    return seconds;
  }

  // What the budget leaves beside an arena is for what the recorder still holds.
  void leave_to_pool(int64_t arena_bytes) const {
    if (recorder_.pool() != nullptr) {
      const int64_t taken = variant_->graph.external_bytes() + arena_bytes;
      recorder_.pool()->set_limit(std::max<int64_t>(0, budget_bytes_ - taken));
    }
  }

  // What is tried here can be put back at any time, so that it can be interrupted at any op.
  std::function<void()> after_op(StepProgress::Stage stage) {
    const auto total = static_cast<int64_t>(variant_->graph.ops.size());
    return [this, progress = StepProgress{.stage = stage, .ops_total = total}]() mutable {
      if (options_.host.poll) {
        options_.host.poll();
      }
      if (options_.progress) {
        ++progress.ops_done;
        progress.spilled_bytes = recorder_.pool() == nullptr ? 0 : recorder_.pool()->counts().spilled_bytes;
        options_.progress(progress);
      }
    };
  }

  // In the given order, if all that it keeps fits; else under a first plan.
  void measure_ops(const WrittenCopies& before) {
    const int64_t start = cpu_device().now_ns();
    const Recording& recording = variant_->recording();
    Schedule schedule = rewrite(recording.graph, given_order(recording.graph));
    Placement placement;
    std::shared_ptr<Arena> arena;
    const int64_t room = budget_bytes_ - recording.graph.external_bytes();
    if (simulate(recording.graph, schedule).peak_bytes <= budget_bytes_) {
      placement = place(recording.graph, schedule, {.enough_bytes = room});
    }
    const bool fits = !placement.instance_offset.empty() && placement.arena_bytes <= room;
    if (!fits) {
      make_first_plan();
      schedule = variant_->schedule();
      placement = variant_->placement();
    }
    leave_to_pool(placement.arena_bytes);
    arena = fits ? make_arena(placement.arena_bytes) : arena_(placement.arena_bytes);
    Runner runner(recording, schedule, placement, arena,
                  {.after_op = after_op(StepProgress::Stage::measure), .channel = options_.execute.channel});
    const double seconds = std::min(options_.measure_seconds, kMeasuredSteps * plain_seconds());
    variant_->graph = measure(recording, runner, {.seconds = seconds, .time_whole_step = false},
                              [&](Runner& each) { bind(each); },
                              [&](Runner& each) {
                                each.undo();
                                before.restore();
                                recorder_.check_pool();
                              })
                          .graph;
    variant_->report.measure_seconds = seconds_since(start);
  }

  double quick_seconds() const {
    return std::min(options_.plan_seconds, std::max(kQuickPlanSeconds, plain_seconds()));
  }

  void make_plan(double seconds) {
    if (options_.progress) {
      options_.progress({.stage = StepProgress::Stage::plan});
    }
    while (true) {
      try {
        variant_->planned = plan_step(variant_->graph, options_, budget_bytes_, seconds);
        break;
      } catch (const Infeasible& infeasible) {
        if (budget_bytes_ >= whole_budget_bytes_) {
          throw;
        }
        take_more_than_the_limit(infeasible.floor_bytes);
      }
    }
    variant_->report.plan_seconds += variant_->planned.seconds;
    cpu_device().trim();  // what planning needed is wanted for the arena
  }

  // Memory is short, and no plan does with what it leaves.
  void take_more_than_the_limit(int64_t floor_bytes) {
    budget_bytes_ = floor_bytes > budget_bytes_ ? std::min(whole_budget_bytes_, floor_bytes) : whole_budget_bytes_;
    least_planned_bytes_ = budget_bytes_;
    variant_->least_planned_bytes = budget_bytes_;
    variant_->report.budget_bytes = budget_bytes_;
  }

  // That of another size of the program, which costs nothing to find; else with the times of the recorded run.
  void make_first_plan() {
    if (take_plan_of_other_size()) {
      return;
    }
    try {
      make_plan(quick_seconds());
    } catch (const Infeasible&) {
      if (quick_seconds() >= options_.plan_seconds) {
        throw;
      }
      make_plan(options_.plan_seconds);
    }
  }

  // Of all that fit, the fastest.
  bool take_plan_of_other_size() {
    std::optional<StepPlan> best;
    const auto look_at = [&](const Graph& graph, const StepPlan& planned) {
      if (!planned.plan.placement) {
        return;  // what it used has failed
      }
      auto made = plan_of_other_size(variant_->graph, graph, planned, budget_bytes_);
      if (made && (!best || made->plan.time_ns < best->plan.time_ns)) {
        best = std::move(made);
      }
    };
    for (const auto& each : known_) {
      look_at(each->graph, each->planned);
      std::ranges::for_each(each->others, [&](const StepPlan& other) { look_at(each->graph, other); });
    }
    if (best) {
      variant_->planned = std::move(*best);
      variant_->report.from_other_size = true;
    }
    return best.has_value();
  }

  // The steps to come are timed, for a better plan.
  void leave_to_improve() {
    variant_->improvement = std::make_unique<Variant::Improvement>();
    variant_->improvement->samples_ns.resize(variant_->graph.ops.size());
  }

  // The planned step on the same bytes that the plain one began with.
  void compare(bool timed) {
    Variant& variant = *variant_;
    leave_to_pool(variant.placement().arena_bytes);
    const std::shared_ptr<Arena> arena = arena_(variant.placement().arena_bytes);
    Runner runner(variant.recording(), variant.schedule(), variant.placement(), arena,
                  {.poison = options_.execute.poison,
                   .after_op = after_op(StepProgress::Stage::compare),
                   .channel = options_.execute.channel});
    const std::vector<std::vector<uint64_t>> digests = variant.made.by_part(recorder_.digests);
    arena->reclaim();
    runner.compare_with(&digests);
    std::vector<std::vector<int64_t>> samples_ns(variant.graph.ops.size());
    const Timing timing{samples_ns};
    runner.time_with(timed ? &timing : nullptr);
    runner.start();
    bind(runner);
    try {
      runner.run_rest();
    } catch (...) {
      runner.undo();
      throw;
    }
    for (size_t i = 0; timed && i < samples_ns.size(); ++i) {
      if (!samples_ns[i].empty()) {  // else it read packed bytes
        variant.graph.ops[i].time_ns = std::max<int64_t>(1, std::ranges::min(samples_ns[i]));
      }
    }
    add_moves(variant.graph);
    const std::optional<StorageNumber> wrong = first_wrong(runner, *arena);
    variant.counts = runner.counts();
    if (!wrong && same_generators()) {
      return;
    }
    const Op* const op = runner.first_difference() ? &variant.graph.op(*runner.first_difference())
                                                   : nullptr;
    runner.undo();
    throw OtherBits(concat(
        "[step] the planned step computes other bits than the plain one",
        wrong ? concat(" (in ", variant.graph.storage(variant.made.id_of[index(*wrong)]).name, ")")
              : std::string(" (in the generator)"),
        op != nullptr ? concat("; the first op that differs is ", op->name, " (", op->kind, ")",
                               in_layer(op->scope))
                      : std::string(),
        "; it writes where its schema does not say so, or is not deterministic: keep it outside of "
        "the step"));
  }

  std::optional<StorageNumber> first_wrong(const Runner& runner, const Arena& arena) const {
    const Graph& graph = variant_->graph;
    for (size_t i = 0; i < variant_->trace.storages.size(); ++i) {
      if (!variant_->trace.storages[i].output) {
        continue;
      }
      const auto output = std::ranges::find(graph.outputs, variant_->made.id_of[i]);
      const auto position = static_cast<size_t>(output - graph.outputs.begin());
      const void* const planned = arena.at(runner.output_offset(position));
      if (!same_output(static_cast<StorageNumber>(i), planned)) {
        return static_cast<StorageNumber>(i);
      }
    }
    return recorder_.first_change();
  }

  // Bytes that no op writes (between rows, or of an empty tensor) may be anything.
  bool same_output(StorageNumber number, const void* planned) const {
    const SeenStorage& storage = variant_->trace[number];
    const void* const plain = recorder_.held[index(number)].data();
    if (recorder_.pool() != nullptr) {
      recorder_.pool()->use({&plain, 1});
      recorder_.check_pool();
    }
    if (storage.bytes == 0 || storage.uninitialised ||
        std::memcmp(planned, plain, static_cast<size_t>(storage.bytes)) == 0) {
      return true;
    }
    const SeenOp& creator = variant_->trace.ops[static_cast<size_t>(storage.creator)];
    const auto made = std::ranges::find(creator.creates, number) - creator.creates.begin();
    const Window& window = creator.created[static_cast<size_t>(made)].view;
    const at::Tensor a = make_tensor(window, borrow(const_cast<void*>(planned), storage.bytes));
    const at::Tensor b = make_tensor(window, borrow(const_cast<void*>(plain), storage.bytes));
    if (a.is_non_overlapping_and_dense() && span_bytes(a) == storage.bytes) {
      return false;
    }
    const at::Tensor x = a.contiguous();
    const at::Tensor y = b.contiguous();
    return std::memcmp(x.data_ptr(), y.data_ptr(), x.nbytes()) == 0;
  }

  bool same_generators() const {
    return std::ranges::all_of(recorder_.generators(), [](const auto& each) {
      at::Generator generator = each.first;
      const std::lock_guard lock(generator.mutex());
      return GeneratorState::of(generator) == each.second;
    });
  }

  // A trace that held on to tensors would keep what the program has let go.
  void forget_tensors() {
    for (SeenStorage& storage : variant_->trace.storages) {
      if (storage.external) {
        storage.external->tensor = at::Tensor();
      }
    }
    for (ExternalSource& source : variant_->made.recording.externals) {
      source.tensor = at::Tensor();
    }
  }

  Recorder& recorder_;
  const StepOptions& options_;
  std::optional<ChannelModel> channel_;
  ChannelLoss channel_failed_;
  ArenaSource arena_;
  const std::vector<std::unique_ptr<Variant>>& known_;
  const int64_t memory_limit_;
  int64_t whole_budget_bytes_ = kNotAsked;
  int64_t budget_bytes_ = 0;  // what is planned for
  int64_t least_planned_bytes_ = 0;
  std::unique_ptr<Variant> variant_;
};

}  // namespace

std::unique_ptr<Variant> make_variant(Recorder& recorder, const StepOptions& options,
                                      const std::optional<ChannelModel>& channel,
                                      const ChannelLoss& channel_failed, const ArenaSource& arena,
                                      const std::vector<std::unique_ptr<Variant>>& known, int64_t memory_limit) {
  return Adoption(recorder, options, channel, channel_failed, arena, known, memory_limit).run();
}

}  // namespace remat::detail
