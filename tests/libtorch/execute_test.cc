// SPDX-License-Identifier: Apache-2.0
#include "remat/libtorch/execute.h"

#include <gtest/gtest.h>

#include <cmath>
#include <thread>

#include "remat/core/error.h"
#include "remat/core/place.h"
#include "remat/core/rewrite.h"
#include "remat/core/strategies/strategies.h"
#include "remat/libtorch/measure.h"
#include "tests/libtorch/tiny_zoo.h"
#include "tests/libtorch/training.h"

// Plans of captured steps on real tensors: three training steps with an optimizer leave the bits of
// plain LibTorch, in the predicted bytes.

namespace remat {
namespace {

using at::Tensor;
using testing::PlannedStep;
using testing::Problem;
using testing::same_bits;
using testing::train;

Recording record(const Problem& problem) {
  Recording recording = capture(problem.loss, problem.batches[0], problem.parameters,
                                {.buffers = problem.buffers});
  recording.graph = measure(recording, problem.batches[0], {.seconds = 0}).graph;
  return recording;
}

class ExecuteZoo : public ::testing::TestWithParam<std::string> {};

TEST_P(ExecuteZoo, TrainsTheSameAtEveryBudget) {
  const Problem problem = testing::zoo_problem(GetParam());
  const std::vector<Tensor> plain = train(problem, testing::plain_step(problem));
  const Recording recording = record(problem);
  const int64_t whole = keep_all_baseline(recording.graph).peak_bytes;
  const int64_t least = floor(recording.graph).bytes;
  // Shares of the whole and, as parameters are most of a tiny model, of what lies above the floor.
  const int64_t above = whole - least;
  int executed = 0;
  for (const int64_t budget : {whole, whole / 100 * 75, whole / 100 * 50, whole / 100 * 35,
                               least + above / 2, least + above / 4}) {
    SCOPED_TRACE(::testing::Message() << budget << " of " << whole << " bytes");
    const Plan made = plan(recording.graph, {.budget_bytes = budget,
                                             .strategy = "search",
                                             .placed = true,
                                             .max_orders = 60});
    if (budget < least) {
      EXPECT_FALSE(made.feasible);
      continue;
    }
    if (!made.feasible) {  // only where addresses cost what is left above the floor
      EXPECT_LT(budget, least + least / 10);
      continue;
    }
    PlannedStep step(recording, made);
    EXPECT_LE(made.peak_bytes, budget);
    EXPECT_LE(step.reserved_bytes(), budget);
    EXPECT_TRUE(same_bits(train(problem, std::ref(step)), plain));
    ++executed;
  }
  EXPECT_GE(executed, 2);
  const Plan at_floor = plan(recording.graph,
                             {.budget_bytes = least, .strategy = "search", .max_orders = 60});
  EXPECT_TRUE(at_floor.feasible);
  PlannedStep step(recording, at_floor);
  EXPECT_TRUE(same_bits(train(problem, std::ref(step)), plain));
}

INSTANTIATE_TEST_SUITE_P(Zoo, ExecuteZoo, ::testing::ValuesIn(testing::zoo_names()),
                         [](const auto& instance) { return instance.param; });

class ExecuteStrategy : public ::testing::TestWithParam<std::string> {};

TEST_P(ExecuteStrategy, ItsPlanExecutes) {
  for (const char* model : {"resnet18", "gpt2_small"}) {
    SCOPED_TRACE(model);
    const Problem problem = testing::zoo_problem(model, 2);
    const std::vector<Tensor> plain = train(problem, testing::plain_step(problem));
    const Recording recording = record(problem);
    const int64_t budget = keep_all_baseline(recording.graph).peak_bytes / 10 * 7;
    const Plan made = plan(recording.graph, {.budget_bytes = budget,
                                             .strategy = GetParam(),
                                             .time_limit_seconds = 1,
                                             .max_orders = 60});
    PlannedStep step(recording, made);
    EXPECT_TRUE(same_bits(train(problem, std::ref(step)), plain));
  }
}

std::vector<std::string> strategy_names() {
  std::vector<std::string> names;
  for (const Strategy& strategy : strategies()) {
    names.emplace_back(strategy.name);
  }
  return names;
}

INSTANTIATE_TEST_SUITE_P(All, ExecuteStrategy, ::testing::ValuesIn(strategy_names()),
                         [](const auto& instance) { return instance.param; });

// A small net with something of everything: in-place ops, BatchNorm, dropout, an embedding.
struct Small {
  explicit Small(int64_t seed = 5) {
    torch::manual_seed(static_cast<uint64_t>(seed));
    net = torch::nn::Sequential(torch::nn::Embedding(10, 6), torch::nn::Linear(6, 8),
                                torch::nn::BatchNorm1d(8),
                                torch::nn::ReLU(torch::nn::ReLUOptions(true)),
                                torch::nn::Dropout(0.5), torch::nn::Linear(8, 3));
    problem = testing::module_problem(
        *net,
        [model = net](const Batch& batch) mutable {
          return torch::nn::functional::cross_entropy(model->forward(batch[0]), batch[1]);
        },
        {batch(1), batch(2), batch(3)});
  }
  static Batch batch(int64_t step) {
    return {(torch::arange(8) * step + 1) % 10, (torch::arange(8) + step) % 3};
  }
  torch::nn::Sequential net{nullptr};
  Problem problem;
};

// An earlier version of an output that is made again after the output itself is not the output.
TEST(Execute, OutputIsTheLastVersion) {
  const Tensor weight = torch::randn({4}, at::requires_grad());
  const Problem problem{
      .parameters = {weight},
      .loss = [weight](const Batch& batch) { return (weight * batch[0]).exp().sum().mul_(2.0); },
      .batches = {{torch::randn({4})}}};
  const std::vector<Tensor> plain = train(problem, testing::plain_step(problem));
  const Recording recording = record(problem);
  const Graph& graph = recording.graph;
  const auto creator_of_input = [&](OpId op) {
    return *graph.storage(graph.op(op).reads[0].storage).creator;
  };
  const auto found = std::ranges::find(graph.ops, "aten::sum", &Op::kind);
  ASSERT_NE(found, graph.ops.end());
  const auto sum = static_cast<OpId>(found - graph.ops.begin());
  const OpId exp = creator_of_input(sum);
  const OpId mul = creator_of_input(exp);
  std::vector<OpId> order = given_order(graph);
  order.insert(order.end(), {mul, exp, sum});
  PlannedStep step(recording, make_plan(recording.graph, "by hand", order, kNoBudget));
  EXPECT_TRUE(same_bits(train(problem, std::ref(step)), plain));
}

TEST(Execute, RefusesOtherBatches) {
  const Small small;
  const Recording recording = record(small.problem);
  const Schedule schedule = rewrite(recording.graph, given_order(recording.graph));
  const Placement placement = place(recording.graph, schedule);
  Execution execution(recording, schedule, placement, make_arena(placement.arena_bytes));
  const Batch good = Small::batch(1);
  const auto message = [&](const Batch& batch) -> std::string {
    try {
      execution.run(batch);
    } catch (const Error& error) {
      return error.what();
    }
    return "nothing was thrown";
  };
  EXPECT_EQ(message({good[0]}), "[step] the batch has 1 tensors; expected 2");
  EXPECT_EQ(message({good[0], Tensor()}),
            "[step] tensor 1 of the batch is undefined; expected data");
  EXPECT_EQ(message({good[0].slice(0, 0, 4), good[1]}),
            "[step] tensor 0 of the batch is [4] of Long with strides [1]; this step was captured "
            "with [8] of Long with strides [1]");
  EXPECT_NE(message({good[0].to(at::kInt), good[1]}).find("[8] of Int"), std::string::npos);
  EXPECT_NE(message({torch::zeros({16}, at::kLong).slice(0, 0, 16, 2), good[1]}).find("strides [2]"),
            std::string::npos);
  EXPECT_NE(message({good[0].to_sparse(), good[1]}).find("sparse"), std::string::npos);
  EXPECT_NE(message({torch::quantize_per_tensor(torch::zeros({8}), 1, 0, at::kQInt8), good[1]})
                .find("quantized"),
            std::string::npos);
  EXPECT_NE(message({good[0].to(at::kMeta), good[1]}).find("another device"), std::string::npos);
  execution.run(good);
  // A window into a larger tensor looks the same.
  execution.run({torch::ones({20}, at::kLong).slice(0, 3, 11), good[1]});
}

// A batch with an index out of range makes an op in the middle of the step throw.
TEST(Execute, FailedStepLeavesEverythingAsItWas) {
  const Small small;
  const Problem& problem = small.problem;
  const std::vector<Tensor> plain = train(problem, testing::plain_step(problem));
  const Recording recording = record(problem);
  for (const char* strategy : {"keep_all", "recompute_all"}) {
    PlannedStep step(recording, plan(recording.graph, {.strategy = strategy}));
    const auto failing_first = [&](const Batch& batch) {
      const std::vector<Tensor> before = testing::clones(problem.parameters);
      const std::vector<Tensor> buffers = testing::clones(problem.buffers);
      const Tensor generator = testing::generator_state();
      for (const Batch& bad : {Batch{torch::full({8}, 10), batch[1]},   // embedding, the first op
                               Batch{batch[0], torch::full({8}, 3)}}) {  // nll_loss, after BatchNorm
        EXPECT_THROW(step(bad), c10::Error);
        EXPECT_TRUE(same_bits(testing::clones(problem.parameters), before));
        EXPECT_TRUE(same_bits(testing::clones(problem.buffers), buffers));
        EXPECT_TRUE(same_bits(testing::generator_state(), generator));
        for (const Tensor& parameter : problem.parameters) {
          EXPECT_FALSE(parameter.grad().defined());
        }
      }
      return step(batch);
    };
    EXPECT_TRUE(same_bits(train(problem, failing_first), plain));
  }
}

TEST(Execute, FollowsParametersToOtherMemory) {
  const Small small;
  const Problem& problem = small.problem;
  const std::vector<Tensor> plain = train(problem, testing::plain_step(problem));
  const Recording recording = record(problem);
  PlannedStep step(recording, plan(recording.graph, {.strategy = "recompute_all"}));
  for (Tensor parameter : problem.parameters) {
    parameter.set_data(parameter.detach().clone());
  }
  for (Tensor buffer : problem.buffers) {
    buffer.set_data(buffer.clone());
  }
  EXPECT_TRUE(same_bits(train(problem, std::ref(step)), plain));
}

// The same bytes in another order would be read as if nothing had happened.
TEST(Execute, RefusesParametersInAnotherLayout) {
  const Small small;
  const Recording recording = record(small.problem);
  PlannedStep step(recording, plan(recording.graph, {.strategy = "keep_all"}));
  Tensor weight = small.problem.parameters[0];
  weight.set_data(weight.detach().t().contiguous().t());
  try {
    step(small.problem.batches[0]);
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "[step] parameter 0 has another shape, type or layout in memory than "
                               "before the capture; capture the step again");
  }
}

TEST(Execute, SeveralPlansOfOneRecordingAndSeveralModels) {
  const Small first(1), second(2);
  const std::vector<Tensor> plain_first = train(first.problem, testing::plain_step(first.problem));
  const std::vector<Tensor> plain_second =
      train(second.problem, testing::plain_step(second.problem));
  const Recording recording_first = record(first.problem);
  const Recording recording_second = record(second.problem);
  PlannedStep a(recording_first, plan(recording_first.graph, {.strategy = "recompute_all"}));
  PlannedStep b(recording_first, plan(recording_first.graph, {.strategy = "keep_all"}));
  PlannedStep c(recording_second, plan(recording_second.graph, {.strategy = "recompute_all"}));
  for (int round = 0; round < 2; ++round) {
    EXPECT_TRUE(same_bits(train(first.problem, std::ref(a)), plain_first));
    EXPECT_TRUE(same_bits(train(second.problem, std::ref(c)), plain_second));
    EXPECT_TRUE(same_bits(train(first.problem, std::ref(b)), plain_first));
  }
}

TEST(Execute, ResultsOutliveTheExecution) {
  const Small small;
  const Recording recording = record(small.problem);
  std::vector<StepResult> held;
  std::vector<Tensor> copies;
  {
    const Schedule schedule = rewrite(recording.graph, given_order(recording.graph));
    const Placement placement = place(recording.graph, schedule);
    Execution execution(recording, schedule, placement, make_arena(placement.arena_bytes),
                        {.poison = true});
    for (int64_t i = 1; i < 4; ++i) {
      held.push_back(execution.run(Small::batch(i)));
      copies.push_back(held.back().loss.clone());
      EXPECT_EQ(execution.counts().moved_bytes > 0, i > 1);
    }
  }
  for (size_t i = 0; i < held.size(); ++i) {
    EXPECT_TRUE(same_bits(held[i].loss, copies[i]));
    EXPECT_TRUE(std::isfinite(held[i].gradients[0].sum().item<float>()));
  }
}

TEST(Execute, TimingRepeatsShortOpsAndChangesNothing) {
  const Small small;
  const Recording recording = record(small.problem);
  const Graph& graph = recording.graph;
  const Schedule schedule = rewrite(graph, given_order(graph));
  const Placement placement = place(graph, schedule);
  Execution execution(recording, schedule, placement, make_arena(placement.arena_bytes));
  const Batch& batch = small.problem.batches[0];
  const auto left_by = [&](const StepResult& result) {
    std::vector<Tensor> left = testing::clones(result.gradients);
    left.push_back(result.loss.clone());
    for (const Tensor& buffer : small.problem.buffers) {
      left.push_back(buffer.clone());
    }
    left.push_back(testing::generator_state());
    return left;
  };
  const std::vector<Tensor> once = left_by(execution.run(batch));
  const StepCounts counts = execution.counts();
  execution.undo();
  std::vector<std::vector<int64_t>> samples(graph.ops.size());
  EXPECT_TRUE(same_bits(left_by(execution.run_timed(batch, samples, 3)), once));
  EXPECT_EQ(execution.counts().peak_bytes, counts.peak_bytes);
  EXPECT_EQ(execution.counts().outside_allocations, 0);
  int repeated = 0;
  for (size_t i = 0; i < samples.size(); ++i) {
    const Op& op = graph.ops[i];
    const bool once_only = op.random || op.once || !op.updates.empty() || !op.effects.empty();
    EXPECT_TRUE(samples[i].size() == 1 || (samples[i].size() == 4 && !once_only)) << op.name;
    repeated += samples[i].size() == 4;
  }
  EXPECT_GT(repeated, 0);
}

// Times of ops and of the whole step are of the same work: each op's is a part of the step's, and none
// is forgotten or counted twice. How close the sums are is for the benchmarks to say.
TEST(Execute, MeasureTimesEveryOpAndTheStep) {
  const Problem problem = testing::zoo_problem("gpt2_small", 1);
  const Recording recording =
      capture(problem.loss, problem.batches[0], problem.parameters, {.buffers = problem.buffers});
  const Measurement measured = measure(recording, problem.batches[0], {.seconds = 0});
  EXPECT_GE(measured.rounds, 3);
  EXPECT_GT(measured.step_ns, 0);
  int64_t sum_ns = 0;
  for (const Op& op : measured.graph.ops) {
    EXPECT_GT(op.time_ns, 0) << op.name;
    EXPECT_LT(op.time_ns, measured.step_ns) << op.name;
    sum_ns += op.time_ns;
  }
  EXPECT_GT(sum_ns, measured.step_ns / 20);
  EXPECT_LT(sum_ns, measured.step_ns * 20);
}

}  // namespace
}  // namespace remat
