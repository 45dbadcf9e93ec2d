// SPDX-License-Identifier: Apache-2.0
// follow_bench: what it costs that remat::Step calls the user's function at every step, and what
// the first call costs. Methods are interleaved, A B C A B C, in one process; medians.
//
//   follow_bench                  both tables of bench/README.md
//   follow_bench ops              per op: a step of tiny tensors, whose kernels take little time
//   follow_bench first            the first call of models of the zoo, in plain steps
//   follow_bench first --models resnet50 --batch 8 --image 224
//
// Per op, in microseconds: `plain` is the plain loop, `step` the same under a Step without a budget,
// `replay` the same without calling the function (StepOptions::follow), `kernels` the sum of the
// measured times of the ops. The plain loop spends plain - kernels outside of kernels, a followed
// step step - kernels; `beyond` is the difference of the two.
#include <torch/torch.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "remat/libtorch/step.h"
#include "remat/models/zoo.h"

namespace {

using remat::Batch;
using remat::Step;

double now_us() {
  return std::chrono::duration<double, std::micro>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

double time_us(const std::function<void()>& work) {
  const double start = now_us();
  work();
  return now_us() - start;
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

// Sizes at which a step takes some tenths of a second on two cores.
const std::map<std::string, remat::models::ModelSize> kSizes = {
    {"resnet18", {.batch = 8, .image = 128}},
    {"bert_base", {.batch = 4, .sequence = 64}},
};

// A perceptron of many small layers with its optimizer: the whole training step is one function.
struct TinyTraining {
  TinyTraining(int layers, int64_t width) {
    torch::manual_seed(1);
    for (int i = 0; i < layers; ++i) {
      net->push_back(torch::nn::Linear(width, width));
      net->push_back(torch::nn::Tanh());
    }
    const auto options = torch::optim::SGDOptions(0.01).momentum(0.9);
    optimizer = std::make_unique<torch::optim::SGD>(net->parameters(), options);
  }
  Batch operator()(const Batch& batch) {
    optimizer->zero_grad();
    const at::Tensor loss = net->forward(batch[0]).pow(2).mean();
    loss.backward();
    optimizer->step();
    return {loss.detach()};
  }
  torch::nn::Sequential net;
  std::unique_ptr<torch::optim::SGD> optimizer;
};

void bench_ops(int layers, int64_t width, int rounds) {
  at::set_num_threads(1);
  TinyTraining training(layers, width);
  const auto function = [&](const Batch& batch) { return training(batch); };
  Step step(function, {.strategy = "keep_all", .measure_seconds = 0.5});
  Step replay(function, {.strategy = "keep_all", .measure_seconds = 0.5, .follow = 2});
  const Batch batch = {torch::randn({width, width})};
  training(batch);  // the optimizer's state is there from now on
  std::vector<double> plain_us, step_us, replay_us;
  for (int round = -5; round < rounds; ++round) {
    const double plain_time = time_us([&] { training(batch); });
    const double step_time = time_us([&] { step(batch); });
    const double replay_time = time_us([&] { replay(batch); });
    if (round >= 0) {  // before, variants are recorded and caches are warmed
      plain_us.push_back(plain_time);
      step_us.push_back(step_time);
      replay_us.push_back(replay_time);
    }
  }
  const remat::StepReport report = step.report();
  const auto ops = static_cast<double>(step.graph().ops.size());
  const double plain = median(plain_us) / ops;
  const double followed = median(step_us) / ops;
  const double kernels = static_cast<double>(report.time_ns) / 1e3 / ops;
  std::printf(
      "| layers | ops | plain | step | replay | kernels | plain - kernels | step - kernels | "
      "beyond |\n|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n");
  std::printf("| %d | %.0f | %.2f | %.2f | %.2f | %.2f | %.2f | %.2f | %.2f |\n", layers, ops,
              plain, followed, median(replay_us) / ops, kernels, plain - kernels, followed - kernels,
              followed - plain);
  std::printf("\n%ld calls were planned, %ld ran plainly; microseconds per op\n\n",
              report.planned_steps, report.plain_steps);
  std::fflush(stdout);
}

struct FirstCalls {
  remat::models::ModelSize size;
  std::string optimizer = "sgd";
  int budget = 100;  // in % of the keep-all peak
  int rounds = 3;
};

std::unique_ptr<torch::optim::Optimizer> make_optimizer(const std::string& name, std::vector<at::Tensor> parameters) {
  if (name == "adamw") {
    return std::make_unique<torch::optim::AdamW>(std::move(parameters), torch::optim::AdamWOptions(1e-5));
  }
  return std::make_unique<torch::optim::SGD>(std::move(parameters), torch::optim::SGDOptions(1e-4));
}

// The first call records, measures and plans; later calls are followed. With an optimizer that makes its state in the
// first call it is the second that is planned, and both count.
void bench_first_call(const std::string& name, const FirstCalls& asked) {
  torch::manual_seed(1);
  const remat::models::TrainingTask task = remat::models::find_model(name).make(asked.size);
  const Batch batch = task.make_batch(1);
  const auto new_optimizer = [&] { return make_optimizer(asked.optimizer, task.module->parameters()); };
  auto optimizer = new_optimizer();
  const remat::StepFunction function = [&](const Batch& given) -> Batch {
    const at::Tensor loss = task.loss(given);
    loss.backward();
    optimizer->step();
    optimizer->zero_grad();
    return {loss.detach()};
  };
  function(batch);
  int64_t budget_bytes = remat::kNoBudget;
  if (asked.budget < 100) {
    Step probe(function, {.strategy = "keep_all", .measure_seconds = 0});
    probe(batch);
    budget_bytes = probe.report().keep_all_peak_bytes / 100 * asked.budget;
  }
  std::vector<double> plain_us, later_us, first_us;
  remat::StepReport report;
  int calls = 0;
  for (int round = 0; round < asked.rounds; ++round) {
    plain_us.push_back(time_us([&] { function(batch); }));
    Step step(function, {.budget_bytes = budget_bytes});
    optimizer = new_optimizer();
    double first = 0;
    const auto planned = [&] {
      try {
        report = step.report();
        return true;
      } catch (const remat::Error&) {
        return false;
      }
    };
    for (calls = 0; calls == 0 || !planned(); ++calls) {
      first += time_us([&] { step(batch); });
    }
    first_us.push_back(first);
    plain_us.push_back(time_us([&] { function(batch); }));
    step(batch);
    later_us.push_back(time_us([&] { step(batch); }));
    plain_us.push_back(time_us([&] { function(batch); }));
  }
  const double plain = median(plain_us);
  std::ranges::sort(first_us);
  std::printf("| %s, %s | %d %% | %.2f | %d | %.0f | %.2f | %.2f | %.2f | %.1f | %.1f to %.1f | %.2f |\n", name.c_str(),
              asked.optimizer.c_str(), asked.budget, plain / 1e6, calls,
              static_cast<double>(report.spilled_bytes) / (1 << 20), report.capture_seconds, report.measure_seconds,
              report.plan_seconds, median(first_us) / plain, first_us.front() / plain, first_us.back() / plain,
              median(later_us) / plain);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("What it costs to follow the user's function at every step");
  std::string what = "all";
  std::vector<std::string> models = {"resnet18", "bert_base"};
  std::vector<int> budgets = {100, 50};
  std::string optimizer = "sgd";
  int layers = 40;
  int64_t width = 4;
  int rounds = 0;
  remat::models::ModelSize size;
  app.add_option("what", what)->check(CLI::IsMember({"all", "ops", "first"}));
  app.add_option("--tiny-layers", layers, "of the perceptron for ops");
  app.add_option("--tiny-width", width, "of the perceptron for ops");
  app.add_option("--models", models, "names of the zoo, for first")->delimiter(',');
  app.add_option("--optimizer", optimizer, "inside of the step, for first: adamw makes its state in the first call")
      ->check(CLI::IsMember({"sgd", "adamw"}));
  app.add_option("--budgets", budgets, "in % of the keep-all peak")->delimiter(',');
  app.add_option("--rounds", rounds, "200 for ops and 3 for first if not given");
  app.add_option("--batch", size.batch);
  app.add_option("--image", size.image);
  app.add_option("--seq", size.sequence);
  app.add_option("--layers", size.layers);
  app.add_option("--width", size.width);
  CLI11_PARSE(app, argc, argv);
  try {
    if (what != "first") {
      const int threads = at::get_num_threads();
      bench_ops(layers, width, rounds > 0 ? rounds : 200);
      at::set_num_threads(threads);
    }
    if (what != "ops") {
      std::printf(
          "| model | budget | plain s | calls | spilled MiB | record s | measure s | plan s | first / plain | from, to | "
          "later / plain |\n|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n");
      for (const std::string& model : models) {
        const auto known = kSizes.find(model);
        const bool own_size = size != remat::models::ModelSize{} || known == kSizes.end();
        for (const int budget : budgets) {
          bench_first_call(model, {.size = own_size ? size : known->second,
                                   .optimizer = optimizer,
                                   .budget = budget,
                                   .rounds = rounds > 0 ? rounds : 3});
        }
      }
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "follow_bench: %s\n", error.what());
    return 1;
  }
  return 0;
}
