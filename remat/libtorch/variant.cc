// SPDX-License-Identifier: Apache-2.0
#include "remat/libtorch/variant.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "remat/core/error.h"
#include "remat/core/rewrite.h"
#include "remat/libtorch/device.h"
#include "remat/libtorch/measure.h"
#include "remat/libtorch/op_traits.h"
#include "remat/libtorch/tensor_view.h"

namespace remat::detail {
namespace {

// Measuring takes no longer than so many plain steps (and never fewer than its least rounds).
constexpr double kMeasuredSteps = 4;

// As ==, but a NaN that stays a NaN is no difference.
bool same_constant(const c10::IValue& a, const c10::IValue& b) {
  if (a.isDouble() && b.isDouble()) {
    return a.toDouble() == b.toDouble() || (std::isnan(a.toDouble()) && std::isnan(b.toDouble()));
  }
  return a.tagKind() == b.tagKind() && a == b;
}

// Numbers of one kind are stored alike; another kind changes the type of results.
bool same_kind(const c10::IValue& a, const c10::IValue& b) {
  if (a.isList() && b.isList()) {
    const auto x = a.toListRef();
    const auto y = b.toListRef();
    return std::equal(x.begin(), x.end(), y.begin(), y.end(), same_kind);
  }
  return a.tagKind() == b.tagKind() && (a.isDouble() || a.isInt() || a.isComplexDouble());
}

double seconds_since(int64_t start_ns) {
  return static_cast<double>(cpu_device().now_ns() - start_ns) / 1e9;
}

// The externals that a step writes, as they are now: so that it can be tried again and again.
class WrittenCopies {
 public:
  explicit WrittenCopies(const Recorder& recorder) {
    for (size_t i = 0; i < recorder.trace.storages.size(); ++i) {
      const SeenStorage& storage = recorder.trace.storages[i];
      if (storage.external && storage.external->written && !storage.borrowed) {
        auto* bytes = static_cast<char*>(recorder.held[i].mutable_data()) + storage.base_bytes;
        copies_.push_back({bytes, std::vector<char>(bytes, bytes + storage.bytes), i});
      }
    }
  }
  void restore() const {
    for (const Copy& each : copies_) {
      std::memcpy(each.address, each.bytes.data(), each.bytes.size());
    }
  }
  // The first storage whose bytes are no longer those of the copy.
  std::optional<StorageNumber> first_change() const {
    for (const Copy& each : copies_) {
      if (std::memcmp(each.address, each.bytes.data(), each.bytes.size()) != 0) {
        return static_cast<StorageNumber>(each.storage);
      }
    }
    return std::nullopt;
  }

 private:
  struct Copy {
    char* address;
    std::vector<char> bytes;
    size_t storage;
  };
  std::vector<Copy> copies_;
};

// Turns one recorded run into a variant, and leaves everything as that run did.
class Adoption {
 public:
  Adoption(Recorder& recorder, const StepOptions& options) : recorder_(recorder), options_(options) {}

  std::unique_ptr<Variant> run(const std::function<std::shared_ptr<Arena>(int64_t)>& arena) {
    make_graph();
    const WrittenCopies after(recorder_);
    std::optional<WrittenCopies> before;
    try {
      if (can_be_repeated()) {
        recorder_.put_back();
        before.emplace(recorder_);
        measure_ops(*before);
        make_plan();
        compare(arena(variant_->placement().arena_bytes), after);
      } else {
        variant_->graph = variant_->recording().graph;
        make_plan();
      }
    } catch (...) {
      if (before) {
        before->restore();  // the recorder keeps it, for put_back
      }
      recorder_.put_forward();
      after.restore();
      throw;
    }
    recorder_.put_forward();
    after.restore();
    forget_tensors();
    return std::move(variant_);
  }

 private:
  void make_graph() {
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
    variant_->made = to_graph(variant_->trace, outputs);
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

  void measure_ops(const WrittenCopies& before) {
    const int64_t start = cpu_device().now_ns();
    double plain_seconds = 0;
    for (const SeenOp& op : variant_->trace.ops) {
      plain_seconds += static_cast<double>(op.time_ns) / 1e9;
    }
    const double seconds = std::min(options_.measure_seconds, kMeasuredSteps * plain_seconds);
    variant_->graph = measure(variant_->recording(),
                              {.seconds = seconds, .time_whole_step = false, .poll = options_.host.poll},
                              [&](Runner& runner) { bind(runner); },
                              [&](Runner& runner) {
                                runner.undo();
                                before.restore();
                              })
                          .graph;
    variant_->report.measure_seconds = seconds_since(start);
  }

  void make_plan() {
    const int64_t start = cpu_device().now_ns();
    Variant& variant = *variant_;
    const int64_t budget_bytes =
        options_.budget_of ? options_.budget_of(variant.graph) : options_.budget_bytes;
    variant.report.budget_bytes = budget_bytes;
    PlanOptions plan_options{.budget_bytes = budget_bytes,
                             .strategy = options_.strategy,
                             .placed = true,
                             .time_limit_seconds = options_.plan_seconds,
                             .seed = options_.seed};
    std::exception_ptr interrupted;
    if (options_.host.poll) {
      plan_options.stop = [&] {  // called from inside of the solver, which nothing may be thrown through
        try {
          options_.host.poll();
        } catch (...) {
          interrupted = std::current_exception();
        }
        return interrupted != nullptr;
      };
    }
    variant.plan = remat::plan(variant.graph, plan_options);
    if (interrupted != nullptr) {
      std::rethrow_exception(interrupted);
    }
    if (!variant.plan.feasible) {
      const Floor least = floor(variant.graph, variant.plan);
      const Op& op = variant.graph.op(least.op);
      throw Infeasible(
          concat("[step] no plan fits the budget of ", format_bytes(budget_bytes),
                 ": the least known is ", format_bytes(least.bytes), " (set by ", op.name,
                 op.scope.empty() ? "" : " of " + op.scope, " ", name(op.phase),
                 "); raise the budget or make the batch smaller"),
          budget_bytes, least.bytes);
    }
    variant.schedule = rewrite(variant.graph, variant.plan.order);
    variant.report.plan_seconds = seconds_since(start);
  }

  // The planned step on the same bytes that the plain one began with.
  void compare(const std::shared_ptr<Arena>& arena, const WrittenCopies& after) {
    Variant& variant = *variant_;
    Runner runner(variant.recording(), variant.schedule, variant.placement(), arena,
                  {.poison = options_.execute.poison, .poll = options_.host.poll});
    std::vector<std::vector<uint64_t>> digests(variant.graph.ops.size());
    for (size_t i = 0; i < variant.trace.ops.size(); ++i) {
      if (variant.made.op_of[i]) {
        digests[index(*variant.made.op_of[i])] = recorder_.digests[i];
      }
    }
    arena->reclaim();
    runner.compare_with(&digests);
    runner.start();
    bind(runner);
    try {
      runner.run_rest();
    } catch (...) {
      runner.undo();
      throw;
    }
    const std::optional<StorageNumber> wrong = first_wrong(runner, *arena, after);
    variant.counts = runner.counts();
    if (!wrong && same_generators()) {
      return;
    }
    const Op* const op = runner.first_difference() ? &variant.graph.op(*runner.first_difference())
                                                   : nullptr;
    throw Error(concat(
        "[step] the planned step computes other bits than the plain one",
        wrong ? concat(" (in ", variant.graph.storage(variant.made.id_of[index(*wrong)]).name, ")")
              : std::string(" (in the generator)"),
        op != nullptr ? concat("; the first op that differs is ", op->name, " (", op->kind, ")",
                               in_layer(op->scope))
                      : std::string(),
        "; it writes where its schema does not say so, or is not deterministic: keep it outside of "
        "the step"));
  }

  std::optional<StorageNumber> first_wrong(const Runner& runner, const Arena& arena,
                                           const WrittenCopies& after) const {
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
    return after.first_change();
  }

  // Bytes that no op writes (between rows, or of an empty tensor) may be anything.
  bool same_output(StorageNumber number, const void* planned) const {
    const SeenStorage& storage = variant_->trace[number];
    const void* const plain = recorder_.held[index(number)].data();
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
  std::unique_ptr<Variant> variant_;
};

}  // namespace

bool may_be_taken_over(const c10::OperatorHandle& op, size_t argument, const c10::IValue& recorded,
                       const c10::IValue& found) {
  return traits_of(op).free_number[argument] && same_kind(recorded, found);
}

bool same_call(const SeenOp& a, const SeenOp& b) {
  if (!(a.op == b.op) || a.kind != b.kind || a.grad_mode != b.grad_mode ||
      a.inference_mode != b.inference_mode || a.tensors != b.tensors ||
      a.arguments.size() != b.arguments.size() || a.results.size() != b.results.size()) {
    return false;
  }
  for (size_t i = 0; i < a.arguments.size(); ++i) {
    const c10::IValue& x = a.arguments[i];
    const c10::IValue& y = b.arguments[i];
    if (!holds_tensors(x) && !same_constant(x, y) && !may_be_taken_over(a.op, i, x, y)) {
      return false;
    }
  }
  return std::ranges::equal(a.results, b.results, [](const SeenResult& x, const SeenResult& y) {
    return x.place == y.place && x.view == y.view && x.argument == y.argument;
  });
}

size_t common_calls(const Trace& a, const Trace& b) {
  size_t i = 0, j = 0, common = 0;
  const auto skip = [](const Trace& trace, size_t& at) {
    while (at < trace.ops.size() && trace.ops[at].kind == CallKind::access) {
      ++at;
    }
    return at < trace.ops.size();
  };
  while (skip(a, i) && skip(b, j) && same_call(a.ops[i], b.ops[j])) {
    ++i, ++j, ++common;
  }
  return common;
}

bool same_course(const Trace& a, const Trace& b) {
  return a.threads == b.threads && a.ops.size() == b.ops.size() &&
         a.storages.size() == b.storages.size() &&
         std::ranges::equal(a.ops, b.ops, same_call) &&
         std::ranges::equal(a.storages, b.storages, [](const auto& x, const auto& y) {
           return x.bytes == y.bytes && x.external.has_value() == y.external.has_value() &&
                  x.output == y.output;
         });
}

std::unique_ptr<Variant> make_variant(Recorder& recorder, const StepOptions& options,
                                      const std::function<std::shared_ptr<Arena>(int64_t)>& arena) {
  return Adoption(recorder, options).run(arena);
}

}  // namespace remat::detail
