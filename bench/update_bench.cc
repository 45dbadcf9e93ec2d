// SPDX-License-Identifier: Apache-2.0
// update_bench: how little memory a training step with AdamW can be given, with the update outside of
// the step and inside of it.
//
//   update_bench                                       the table of bench/README.md
//   update_bench --models bert_base --batch 8 --seq 128
//   update_bench --models gpt2_small --live            what is alive where the floor inside is set
//   update_bench --models gpt2_small --verify          five steps in three quarters of what the update outside needs,
//                                                      beside the plain loop: bits and bytes
//
// All figures count parameters, buffers, gradients, the optimizer's state and the batch:
//   plain     the most bytes at one moment of a plain loop (forward, backward, step, zero_grad), as an
//             allocator counts them, once the state exists
//   outside   the larger of: `backward`, the floor of TrainingStep without the update, plus the state,
//             which lies beside it; and `step()`, what optimizer.step() needs, run plainly on all gradients
//   inside    the floor of TrainingStep with the update
#include <torch/torch.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "remat/core/graph_text.h"
#include "remat/core/rewrite.h"
#include "remat/core/simulate.h"
#include "remat/libtorch/trace.h"
#include "remat/libtorch/training_step.h"
#include "remat/models/zoo.h"
#include "tests/testing/counting_allocator.h"

namespace {

using remat::Batch;
using remat::Graph;
using remat::Role;
using remat::TrainingStep;
using remat::models::ModelSize;

double mib(int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

// Small batches of large models, where parameters and gradients set the floor; the others as the zoo
// has them.
const std::map<std::string, ModelSize> kSizes = {
    {"bert_base", {.batch = 8, .sequence = 128}},
    {"gpt2_small", {.batch = 3, .sequence = 256}},
    {"gpt2_small_fused", {.batch = 3, .sequence = 256}},
};

struct Training {
  Training(const std::string& name, const ModelSize& size)
      : task(remat::models::find_model(name).make(size)),
        batch(task.make_batch(1)),
        optimizer(task.module->parameters(), torch::optim::AdamWOptions(1e-4)) {}

  // The most bytes in a plain step: until the update, and in it.
  struct PlainPeaks {
    int64_t backward_bytes = 0;
    int64_t update_bytes = 0;
  };
  PlainPeaks run_plainly() {
    PlainPeaks peaks;
    remat::testing::reset_peak();
    task.loss(batch).backward();
    peaks.backward_bytes = remat::testing::peak_bytes();
    remat::testing::reset_peak();
    optimizer.step();
    peaks.update_bytes = remat::testing::peak_bytes();
    optimizer.zero_grad();
    return peaks;
  }

  TrainingStep step(std::function<void()> update) {
    return TrainingStep([this](const Batch& given) { return task.loss(given); },
                        task.module->parameters(), task.module->buffers(),
                        {.strategy = "keep_all", .measure_seconds = 0, .update = std::move(update)});
  }

  remat::models::TrainingTask task;
  Batch batch;
  torch::optim::AdamW optimizer;
};

// The instances that are alive when a step of the schedule runs.
std::set<size_t> alive_at(const Graph& graph, const remat::Schedule& schedule, size_t last) {
  std::set<size_t> alive;
  for (size_t i = 0; i <= last; ++i) {
    const remat::ScheduleStep& step = schedule.steps[i];
    if (step.kind == remat::StepKind::free) {
      alive.erase(remat::index(step.instance));
      continue;
    }
    for (const remat::InstanceId made : schedule.creates(graph, step)) {
      const remat::InstanceId source = schedule.instances[remat::index(made)].in_place_of;
      if (source != remat::kNoInstance) {
        alive.erase(remat::index(source));
      }
      alive.insert(remat::index(made));
    }
  }
  return alive;
}

void print_live(const Graph& graph, const remat::StepReport& report) {
  std::printf("\nexternals:");
  for (size_t i = 0; i < remat::kRoleCount; ++i) {
    std::printf(" %s %.1f", std::string(remat::name(static_cast<Role>(i))).c_str(),
                mib(report.external_bytes_by_role[i]));
  }
  const remat::Plan plan = remat::plan(graph, {.budget_bytes = report.floor_bytes});
  const remat::Schedule schedule = remat::rewrite(graph, plan.order);
  const remat::Peak peak = remat::simulate_peak(graph, schedule);
  const remat::Op& op = graph.op(schedule.steps[peak.step].op);
  std::printf("\npeak %.1f at %s (%s, %s), of which scratch %.1f, and:\n", mib(peak.bytes),
              op.name.c_str(), op.scope.c_str(), std::string(remat::name(op.phase)).c_str(),
              mib(op.workspace_bytes));
  std::vector<std::pair<int64_t, std::string>> rows;
  for (const size_t instance : alive_at(graph, schedule, peak.step)) {
    const remat::Storage& storage = graph.storage(schedule.instances[instance].storage);
    if (!storage.external()) {
      rows.emplace_back(storage.bytes, storage.name + " " + graph.op(*storage.creator).scope);
    }
  }
  std::ranges::sort(rows, std::greater());
  for (size_t i = 0; i < std::min<size_t>(rows.size(), 20); ++i) {
    std::printf("  %9.1f %s\n", mib(rows[i].first), rows[i].second.c_str());
  }
}

// What a training is after so many steps: losses, parameters, the optimizer's state and the generator, as digests.
std::vector<uint64_t> trained(Training& training, const std::function<at::Tensor(const Batch&)>& step) {
  constexpr int kSteps = 5;
  torch::manual_seed(7);
  std::vector<uint64_t> digests;
  const auto add = [&](const at::Tensor& tensor) {
    digests.push_back(remat::detail::digest(tensor.const_data_ptr(), tensor.nbytes()));
  };
  for (int i = 0; i < kSteps; ++i) {
    const at::Tensor loss = step(training.task.make_batch(i + 1));
    add(loss);
    std::printf("  %.6f", loss.item<double>());
    std::fflush(stdout);
  }
  for (const at::Tensor& parameter : training.task.module->parameters()) {
    add(parameter);
    const auto& state = dynamic_cast<const torch::optim::AdamWParamState&>(
        *training.optimizer.state().at(parameter.unsafeGetTensorImpl()));
    add(state.exp_avg());
    add(state.exp_avg_sq());
  }
  add(at::detail::getDefaultCPUGenerator().get_state());
  return digests;
}

void print_bits(const std::string& name, const ModelSize& size, int64_t budget_bytes) {
  const auto make = [&] {
    torch::manual_seed(1);
    return std::make_unique<Training>(name, size);
  };
  std::printf("\n%s in %.0f MiB, losses of five steps; plain:", name.c_str(), mib(budget_bytes));
  const std::vector<uint64_t> plain = [&] {
    const auto training = make();
    return trained(*training, [&](const Batch& batch) {
      const at::Tensor loss = training->task.loss(batch);
      loss.backward();
      training->optimizer.step();
      training->optimizer.zero_grad();
      return loss.detach();
    });
  }();
  const auto training = make();
  TrainingStep step([&](const Batch& batch) { return training->task.loss(batch); },
                    training->task.module->parameters(), training->task.module->buffers(),
                    {.budget_bytes = budget_bytes, .update = [&] { training->optimizer.step(); }});
  std::printf("\ninside:");
  const std::vector<uint64_t> inside =
      trained(*training, [&](const Batch& batch) { return step(batch); });
  const remat::StepReport report = step.report();
  std::printf("\n%s: %zu digests of losses, parameters, state and generator; reserved %.0f MiB, counted peak "
              "%.0f MiB, %ld planned steps, planned to take %.2f of the time\n",
              inside == plain ? "the same bits" : "OTHER BITS", inside.size(), mib(report.peak_bytes),
              mib(report.measured_peak_bytes), report.planned_steps,
              static_cast<double>(report.time_ns) / static_cast<double>(report.keep_all_time_ns));
  std::fflush(stdout);
}

// Returns what the update outside needs.
int64_t print_row(const std::string& name, const ModelSize& size, bool live, const std::string& graph_file) {
  torch::manual_seed(1);
  Training training(name, size);
  training.run_plainly();  // makes the state
  const Training::PlainPeaks plain = training.run_plainly();
  const int64_t plain_bytes = std::max(plain.backward_bytes, plain.update_bytes);
  TrainingStep whole = training.step([&] { training.optimizer.step(); });
  whole(training.batch);
  const remat::StepReport inside = whole.report();
  const auto state_bytes = inside.external_bytes_by_role[static_cast<size_t>(Role::optimizer_state)];

  TrainingStep backward = training.step({});
  backward(training.batch);
  const int64_t backward_bytes = backward.report().floor_bytes + state_bytes;
  const auto share = [&](int64_t bytes) {
    return 100.0 * static_cast<double>(bytes) / static_cast<double>(plain_bytes);
  };
  const int64_t outside_bytes = std::max(backward_bytes, plain.update_bytes);
  std::printf("| %s | %.0f | %.0f | %.0f | %.0f %% | %.0f | %.0f %% | %.1f %% |\n", name.c_str(),
              mib(plain_bytes), mib(backward_bytes), mib(plain.update_bytes),
              share(outside_bytes), mib(inside.floor_bytes), share(inside.floor_bytes),
              100.0 - 100.0 * static_cast<double>(inside.floor_bytes) /
                          static_cast<double>(outside_bytes));
  std::fflush(stdout);
  if (live) {
    print_live(whole.graph(), inside);
  }
  if (!graph_file.empty()) {
    std::ofstream(graph_file) << remat::print_graph(whole.graph());
  }
  return outside_bytes;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("The floor of a training step with AdamW, with the update outside and inside");
  std::vector<std::string> models;
  for (const remat::models::ZooEntry& entry : remat::models::zoo()) {
    models.push_back(entry.name);
  }
  ModelSize size;
  bool live = false;
  bool verify = false;
  std::string graph_file;
  app.add_option("--models", models, "names of the zoo; all of them if not given")->delimiter(',');
  app.add_option("--batch", size.batch);
  app.add_option("--image", size.image);
  app.add_option("--seq", size.sequence);
  app.add_option("--layers", size.layers);
  app.add_option("--width", size.width);
  app.add_flag("--live", live, "what is alive where the floor inside is set, in MiB");
  app.add_option("--graph", graph_file, "write the graph of the step with the update inside, of the last model");
  app.add_flag("--verify", verify, "train inside three quarters of what the update outside needs, and compare bits");
  CLI11_PARSE(app, argc, argv);
  remat::testing::live_bytes();  // counts from now on
  try {
    std::printf(
        "| model | plain MiB | backward + state | step() | outside | inside MiB | inside | falls by |\n"
        "|---|---:|---:|---:|---:|---:|---:|---:|\n");
    for (const std::string& model : models) {
      const auto known = kSizes.find(model);
      const bool own_size = size != ModelSize{} || known == kSizes.end();
      const ModelSize& used = own_size ? size : known->second;
      const int64_t outside_bytes = print_row(model, used, live, graph_file);
      if (verify) {
        print_bits(model, used, outside_bytes / 4 * 3);
      }
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "update_bench: %s\n", error.what());
    return 1;
  }
}
