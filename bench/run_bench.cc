// SPDX-License-Identifier: Apache-2.0
// run_bench: time of a training step (forward and backward) inside a budget, as a ratio to plain
// LibTorch, in interleaved rounds on the same model in one process:
//
//   round 1: plain, 100 %, 50 %, checkpointed by block; round 2: plain, 100 %, ...
//
//   run_bench                            the four models of the table in bench/README.md
//   run_bench --models resnet50 --rounds 5
//   run_bench --budgets 100,50,35 --batch 4 --image 64      sizes for every model named
//   run_bench --moves --offload /var/tmp --budgets 50,33    each budget by recomputing alone, with packing,
//                                        and with packing and offloading
//   run_bench overhead                   what one executed op costs beyond its kernel
#include <torch/torch.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "remat/core/moves.h"
#include "remat/core/plan.h"
#include "remat/core/rewrite.h"
#include "remat/core/units.h"
#include "remat/libtorch/allocator.h"
#include "remat/libtorch/capture.h"
#include "remat/libtorch/channel_model.h"
#include "remat/libtorch/checkpoint.h"
#include "remat/libtorch/device.h"
#include "remat/libtorch/execute.h"
#include "remat/libtorch/measure.h"
#include "remat/libtorch/training_step.h"
#include "remat/models/zoo.h"

namespace {

using remat::Batch;

double now_ms() {
  return std::chrono::duration<double, std::milli>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

// The peak of what this thread allocates while it lives.
class PeakCounter final : public remat::detail::AllocationListener {
 public:
  void* answer(size_t) override { return nullptr; }
  void allocated(void* address, size_t bytes) override {
    live_[address] = static_cast<int64_t>(bytes);
    peak_bytes = std::max(peak_bytes, live_bytes_ += static_cast<int64_t>(bytes));
  }
  void freed(void* address) override {
    const auto found = live_.find(address);
    if (found != live_.end()) {
      live_bytes_ -= found->second;
      live_.erase(found);
    }
  }
  int64_t peak_bytes = 0;

 private:
  std::unordered_map<void*, int64_t> live_;
  int64_t live_bytes_ = 0;
};

// Sizes at which activations are at least two thirds of the plain step's peak, and a step takes
// seconds on two cores.
const std::map<std::string, remat::models::ModelSize> kSizes = {
    {"resnet50", {.batch = 8, .image = 224}},
    {"resnet152", {.batch = 24, .image = 224}},
    {"bert_base", {.batch = 16, .sequence = 256}},
    {"gpt2_small", {.batch = 6, .sequence = 512}},
};

struct Method {
  std::string name;
  std::function<void()> step;
  double peak_share = 0;  // of plain LibTorch's counted peak
  double predicted_ms = 0;
  std::vector<double> ms = {};
  std::function<double()> waited = {};  // ms for transfers, in the last step
  std::vector<double> waited_ms = {};
};

void clear_gradients(const std::vector<at::Tensor>& parameters) {
  for (at::Tensor parameter : parameters) {
    parameter.mutable_grad() = at::Tensor();
  }
}

at::Tensor checkpointed(remat::models::Block block, std::vector<at::Tensor> inputs) {
  return remat::checkpoint(std::move(block), std::move(inputs));
}

// What a plan may do besides recomputing.
struct Moves {
  const char* name;
  bool pack;
  bool offload;
};

struct BenchOptions {
  std::vector<int> budgets = {100, 50};
  int rounds = 5;
  std::vector<Moves> moves = {{"", false, false}};
  std::shared_ptr<remat::detail::Channel> channel;
  bool by_block = true;
};

void bench_model(const std::string& name, const remat::models::ModelSize& size,
                 const BenchOptions& options) {
  torch::manual_seed(1);
  const remat::models::TrainingTask task = remat::models::find_model(name).make(size);
  const Batch batch = task.make_batch(1);
  const auto parameters = task.module->parameters();
  const auto buffers = task.module->buffers();
  int64_t state_bytes = 0;  // what the peak holds that no plan can change
  for (const auto& tensors : {parameters, buffers, batch}) {
    for (const at::Tensor& tensor : tensors) {
      state_bytes += static_cast<int64_t>(tensor.nbytes());
    }
  }

  // As TrainingStep does it, with one recording and one measurement for all budgets.
  const double capture_start = now_ms();
  remat::Recording recording = remat::capture(task.loss, batch, parameters, {.buffers = buffers});
  const double measure_start = now_ms();
  if (options.channel != nullptr) {
    recording.graph.channel = remat::detail::model_of(*options.channel, 32 * remat::MiB);
    std::printf("channel: %s; write %.2f, read %.2f GB/s, latency %ld us\n",
                options.channel->description().c_str(),
                static_cast<double>(recording.graph.channel->write_bytes_per_s) / 1e9,
                static_cast<double>(recording.graph.channel->read_bytes_per_s) / 1e9,
                recording.graph.channel->latency_ns / 1000);
    add_moves(recording.graph);
  }
  recording.graph = remat::measure(recording, batch, {.time_whole_step = false}).graph;
  std::printf("%s: captured in %.1f s, measured in %.1f s\n", name.c_str(),
              (measure_start - capture_start) / 1e3, (now_ms() - measure_start) / 1e3);
  const remat::Baseline keep_all = remat::keep_all_baseline(recording.graph);
  const int64_t eager_peak = recording.eager_peak_bytes;

  std::vector<Method> methods;
  methods.push_back({"plain", [&] { task.loss(batch).backward(); }, 1.0});
  std::deque<remat::Recording> recordings;
  std::deque<remat::Execution> executions;
  for (const int budget : options.budgets) {
    for (const Moves& moves : options.moves) {
      if (budget >= 100 && (moves.pack || moves.offload)) continue;
      const int64_t bytes = budget >= 100 ? remat::kNoBudget : keep_all.peak_bytes / 100 * budget;
      remat::Recording& allowed = recordings.emplace_back(recording);
      allowed.graph = with_moves(recording.graph, moves.pack, moves.offload);
      if (!moves.pack) allowed.packed_values.clear();
      const remat::Graph& graph = allowed.graph;
      const double plan_start = now_ms();
      const remat::Plan plan = remat::plan(
          graph, {.budget_bytes = bytes,
                  .placed = true,
                  .time_limit_seconds = remat::TrainingStepOptions{}.plan_seconds});
      if (!plan.feasible) {
        std::printf("%s, budget %d %%%s: no plan fits; the least is %s\n", name.c_str(), budget,
                    moves.name, remat::format_bytes(remat::floor(graph).bytes).c_str());
        continue;
      }
      const remat::Schedule schedule = remat::rewrite(graph, plan.order);
      const remat::Placement& placement = *plan.placement;
      const int64_t reserved = graph.external_bytes() + placement.arena_bytes;
      const double predicted =
          static_cast<double>(plan.time_ns) / static_cast<double>(keep_all.time_ns);
      std::printf("%s, budget %d %%%s: plan by %s predicts %+.2f %% time in %s (%.1f %%), %s on the "
                  "channel; planned in %.1f s\n",
                  name.c_str(), budget, moves.name, plan.strategy.c_str(), 100.0 * (predicted - 1),
                  remat::format_bytes(reserved).c_str(),
                  100.0 * static_cast<double>(reserved) / static_cast<double>(keep_all.peak_bytes),
                  remat::format_bytes(placement.channel_bytes).c_str(), (now_ms() - plan_start) / 1e3);
      std::fflush(stdout);
      remat::Execution& execution = executions.emplace_back(
          allowed, schedule, placement, remat::make_arena(placement.arena_bytes),
          remat::ExecuteOptions{.channel = options.channel});
      methods.push_back({std::to_string(budget) + " %" + moves.name,
                         [&] {
                           const remat::StepResult result = execution.run(batch);
                           for (size_t i = 0; i < parameters.size(); ++i) {
                             at::Tensor(parameters[i]).mutable_grad() = result.gradients[i];
                           }
                         },
                         static_cast<double>(reserved) / static_cast<double>(eager_peak),
                         predicted * static_cast<double>(keep_all.time_ns) / 1e6});
      methods.back().waited = [&] { return static_cast<double>(execution.counts().waited_ns) / 1e6; };
    }
  }
  if (options.by_block) {
    methods.push_back({"by block", [&] { task.loss_by_block(batch, checkpointed).backward(); }});
    PeakCounter counter;
    const remat::detail::ListenGuard listen(&counter);
    clear_gradients(parameters);
    methods.back().step();
    methods.back().peak_share =
        static_cast<double>(counter.peak_bytes + state_bytes) / static_cast<double>(eager_peak);
    clear_gradients(parameters);
  }

  for (int round = 0; round <= options.rounds; ++round) {
    for (Method& method : methods) {
      clear_gradients(parameters);
      const double start = now_ms();
      method.step();
      if (round > 0) {  // the first warms up
        method.ms.push_back(now_ms() - start);
        method.waited_ms.push_back(method.waited ? method.waited() : 0);
      }
    }
  }
  clear_gradients(parameters);

  std::printf("\n| %s, batch %ld: plain peak %s, of which activations and gradients of them %.0f %% |\n",
              name.c_str(), size.batch != 0 ? size.batch : remat::models::find_model(name).defaults.batch,
              remat::format_bytes(eager_peak).c_str(),
              100.0 * (1.0 - 2.0 * static_cast<double>(state_bytes) / static_cast<double>(eager_peak)));
  std::printf("| method | peak / plain | time / plain | fastest | slowest | ms | predicted ms | waited ms |\n"
              "|---|---:|---:|---:|---:|---:|---:|---:|\n");
  for (const Method& method : methods) {
    std::vector<double> ratios;
    for (size_t i = 0; i < method.ms.size(); ++i) {
      ratios.push_back(method.ms[i] / methods.front().ms[i]);
    }
    std::printf("| %s | %.2f | %.3f | %.3f | %.3f | %.0f | %.0f | %.0f |\n", method.name.c_str(),
                method.peak_share, median(ratios), *std::ranges::min_element(ratios),
                *std::ranges::max_element(ratios), median(method.ms), method.predicted_ms,
                median(method.waited_ms));
  }
  std::printf("\n");
  std::fflush(stdout);
}

// A chain of additions of tiny tensors. What the runner costs is its time per op less that of the
// same kernel called on tensors that are there already, writing where it is told.
void bench_overhead() {
  at::set_num_threads(1);
  constexpr int kOps = 2000;
  at::Tensor parameter = torch::ones({16}).requires_grad_();
  const auto loss = [&](const Batch& batch) {
    at::Tensor x = parameter * batch[0];
    for (int i = 0; i < kOps; ++i) {
      x = x + batch[0];
    }
    return x.sum();
  };
  remat::TrainingStep step(loss, {parameter}, {}, {.strategy = "keep_all", .measure_seconds = 0.2});
  const Batch batch = {torch::ones({16})};
  step(batch);
  const auto ops = static_cast<double>(step.graph().ops.size());
  at::Tensor out = torch::ones({16});
  std::vector<double> replay, kernel;
  for (int round = 0; round < 50; ++round) {
    parameter.mutable_grad() = at::Tensor();
    double start = now_ms();
    step(batch);
    replay.push_back((now_ms() - start) * 1e6 / ops);
    start = now_ms();
    {
      const torch::NoGradGuard no_gradients;
      for (int i = 0; i < kOps; ++i) {
        at::add_out(out, out, batch[0]);
      }
    }
    kernel.push_back((now_ms() - start) * 1e6 / kOps);
  }
  std::printf("%.0f ops: %.0f ns per executed op, %.0f ns per kernel call: overhead %.0f ns\n", ops,
              median(replay), median(kernel), median(replay) - median(kernel));
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Time of a training step inside a budget, as a ratio to plain LibTorch");
  std::vector<std::string> models = {"resnet50", "resnet152", "bert_base", "gpt2_small"};
  BenchOptions options;
  bool moves = false;
  std::string folder;
  remat::models::ModelSize size;
  app.add_option("--models", models, "names of the zoo")->delimiter(',');
  app.add_option("--budgets", options.budgets, "in % of the keep-all peak; the first must be 100")
      ->delimiter(',');
  app.add_option("--rounds", options.rounds, "after one that warms up");
  app.add_flag("--moves", moves, "each budget by recomputing alone, and with packing, and offloading too");
  app.add_option("--offload", folder, "where to, with --moves");
  app.add_option("--batch", size.batch);
  app.add_option("--image", size.image);
  app.add_option("--seq", size.sequence);
  app.add_option("--layers", size.layers);
  app.add_option("--width", size.width);
  const auto* overhead = app.add_subcommand("overhead", "what one executed op costs beyond its kernel");
  CLI11_PARSE(app, argc, argv);
  try {
    if (overhead->parsed()) {
      bench_overhead();
      return 0;
    }
    if (moves) {
      options.by_block = false;
      options.moves = {{"", false, false}, {" pack", true, false}};
      if (!folder.empty()) {
        options.moves.push_back({" pack offload", true, true});
        options.channel = remat::detail::cpu_device().open_channel(folder);
      }
    }
    for (const std::string& model : models) {
      const auto known = kSizes.find(model);
      const bool own_size = size != remat::models::ModelSize{} || known == kSizes.end();
      bench_model(model, own_size ? size : known->second, options);
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "run_bench: %s\n", error.what());
    return 1;
  }
  return 0;
}
