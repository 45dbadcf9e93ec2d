// SPDX-License-Identifier: Apache-2.0

// Steps that offload, where a transfer is late or fails at the worst moment.

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>

#include "remat/core/moves.h"
#include "remat/core/place.h"
#include "remat/core/rewrite.h"
#include "remat/core/simulate.h"
#include "remat/core/verify.h"
#include "tests/libtorch/moves_fixture.h"

namespace remat {
namespace {

namespace F = torch::nn::functional;
using at::Tensor;
using testing::FakeChannel;
using testing::Problem;
using testing::same_bits;

StepOptions quick(std::shared_ptr<detail::Channel> channel, std::vector<std::string>* notices = nullptr) {
  StepOptions options{.plan_seconds = 0.1, .measure_seconds = 0, .pack = false};
  options.execute.poison = true;
  options.execute.channel = std::move(channel);
  if (notices != nullptr) {
    options.notice = [notices](const std::string& text) { notices->push_back(text); };
  }
  return options;
}

std::string what_it_throws(const std::function<void()>& run) {
  try {
    run();
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

// Whether a schedule brings something back that no step uses any more.
bool brings_back_an_output(const Graph& graph, const Schedule& schedule) {
  for (const ScheduleStep& step : schedule.steps) {
    if (step.kind != StepKind::prefetch) continue;
    const InstanceId back = schedule.creates(graph, step)[0];
    const bool used = std::ranges::any_of(schedule.steps, [&](const ScheduleStep& other) {
      return other.kind != StepKind::free && std::ranges::count(schedule.reads(graph, other), back) > 0;
    });
    if (!used) return true;
  }
  return false;
}

// Nobody waited for what came back last and was read by no op: the step gave it out before it was there.
TEST(MovesFaults, AnOutputThatIsBroughtBackIsThereWhenTheStepReturns) {
  torch::manual_seed(4);
  const Tensor weight = torch::randn({64, 2048}).requires_grad_();
  const Batch batch = {torch::randn({256, 64}), torch::randint(2048, {256}, at::kLong)};
  const StepFunction function = [&](const Batch& each) {
    weight.mutable_grad().reset();
    const Tensor logits = at::matmul(each[0], weight);
    const Tensor loss = F::cross_entropy(logits, each[1]);
    loss.backward();
    return Batch{loss.detach(), logits.detach()};
  };
  const Batch plain = function(batch);
  StepOptions options = quick(std::make_shared<FakeChannel>());
  options.strategy = "offload_only";
  int64_t whole = 0;
  {
    Step step(function, options);
    step(batch);
    whole = step.report().keep_all_peak_bytes;
  }
  bool brought_back = false;
  for (int percent = 95; percent >= 60 && !brought_back; percent -= 5) {
    options.budget_bytes = whole / 100 * percent;
    Step step(function, options);
    try {
      step(batch);
    } catch (const Infeasible&) {
      break;
    }
    for (int i = 0; i < 2; ++i) {
      const Batch made = step(batch);
      EXPECT_TRUE(same_bits(made, plain)) << percent;
    }
    brought_back = brings_back_an_output(step.graph(), step.schedule());
  }
  EXPECT_TRUE(brought_back) << "no plan has the output on the channel at the end";
}

// Two parameters; `a` is read again by backward after the gradient of the second is complete.
struct TwoParameters {
  TwoParameters() {
    torch::manual_seed(6);
    first = torch::randn({512, 512}).requires_grad_();
    second = torch::randn({512, 512}).requires_grad_();
    batch = {torch::randn({512, 512})};
  }
  Tensor loss(const Batch& each) const {
    const Tensor a = (first * each[0]).tanh();
    return (a * second).sum();
  }
  Tensor first, second;
  Batch batch;
};

// The plan with the first op whose effect stays (a sum into a gradient, an update of a parameter) as early as it
// can be, and a value that must have been written when that op is done.
PlanFile away_behind_first_lasting(PlanFile file) {
  SavedCourse& course = file.courses.at(0);
  const Graph& graph = course.graph;
  const auto touches = [&](const Op& op, StorageId storage) {
    const auto is_it = [&](const Value& value) { return value.storage == storage; };
    return std::ranges::any_of(op.reads, is_it) || std::ranges::any_of(op.updates, is_it) ||
           std::ranges::count(op.creates, storage) > 0;
  };
  const auto share = [&](const Op& a, const Op& b) {
    for (size_t s = 0; s < graph.storages.size(); ++s) {
      if (touches(a, static_cast<StorageId>(s)) && touches(b, static_cast<StorageId>(s))) return true;
    }
    return false;
  };
  for (size_t lasting = 0; lasting < graph.ops.size(); ++lasting) {
    const auto stays = [&](const Value& value) { return graph.storage(value.storage).external(); };
    if (!std::ranges::any_of(graph.ops[lasting].updates, stays)) continue;
    size_t at = 0;
    for (size_t i = 0; i < lasting; ++i) at = share(graph.ops[i], graph.ops[lasting]) ? i + 1 : at;
    for (size_t m = 0; m < graph.moves.size(); ++m) {
      const StorageId storage = graph.moves[m].value.storage;
      if (graph.moves[m].kind != MoveKind::offload || index(*graph.storage(storage).creator) >= at ||
          touches(graph.ops[lasting], storage)) {
        continue;
      }
      size_t use = at;
      while (use < graph.ops.size() && !touches(graph.ops[use], storage)) ++use;
      if (use == graph.ops.size()) continue;
      const auto back = std::ranges::find_if(graph.moves, [&](const Move& move) {
        return move.kind == MoveKind::prefetch && move.value.storage == storage;
      });
      const auto number = [&](size_t move) { return static_cast<OpId>(graph.ops.size() + move); };
      std::vector<OpId> order;
      for (size_t i = 0; i < graph.ops.size(); ++i) {
        if (i == at) {
          order.push_back(static_cast<OpId>(lasting));
          order.push_back(number(m));
        }
        if (i == use) order.push_back(number(static_cast<size_t>(back - graph.moves.begin())));
        if (i != lasting) order.push_back(static_cast<OpId>(i));
      }
      course.plan.order = order;
      course.schedule = rewrite(graph, order);
      EXPECT_FALSE(verify(graph, course.schedule, kNoBudget));
      course.plan.placement = place(graph, course.schedule);
      course.plan.peak_bytes = simulate_peak(graph, course.schedule).bytes;
      return file;
    }
  }
  ADD_FAILURE() << "no value is idle behind an op whose effect stays";
  return file;
}

// A write that failed in the frees of the op itself was taken for one before it: the op ran twice.
TEST(MovesFaults, AWriteThatFailsBehindTheFirstSumIntoAGradientEndsTheStep) {
  const TwoParameters net;
  const StepFunction function = [&](const Batch& each) {
    const Tensor loss = net.loss(each);
    loss.backward();
    return Batch{loss.detach()};
  };
  net.first.mutable_grad() = torch::zeros_like(net.first);
  net.second.mutable_grad() = torch::zeros_like(net.second);
  StepOptions options = quick(std::make_shared<FakeChannel>());
  options.strategy = "keep_all";
  Step planned(function, options);
  planned(net.batch);
  const auto channel = std::make_shared<FakeChannel>();
  options.execute.channel = channel;
  options.saved_plan = away_behind_first_lasting(planned.plan_file());
  Step step(function, options);
  step(net.batch);
  ASSERT_TRUE(step.report().from_saved_plan);
  step(net.batch);
  const int64_t writes = channel->writes;
  const Tensor once = net.second.grad() / 3;
  channel->failing = channel->requests();
  const std::string error = what_it_throws([&] { step(net.batch); });
  EXPECT_EQ(channel->writes, writes + 1);
  EXPECT_NE(error.find("No space left on device"), std::string::npos) << error;
  EXPECT_NE(error.find("had begun and cannot be undone"), std::string::npos) << error;
  EXPECT_TRUE(at::allclose(net.second.grad(), once * 4));
}

TEST(MovesFaults, AWriteThatFailsBehindTheFirstUpdateEndsTheStep) {
  const TwoParameters net;
  TrainingStepOptions options = quick(std::make_shared<FakeChannel>());
  options.strategy = "keep_all";
  options.update = [&] {
    const at::NoGradGuard no_gradients;
    net.second.sub_(net.second.grad());
    net.first.sub_(net.first.grad());
  };
  const auto loss = [&](const Batch& each) { return net.loss(each); };
  TrainingStep planned(loss, {net.first, net.second}, {}, options);
  planned(net.batch);
  const auto channel = std::make_shared<FakeChannel>();
  options.execute.channel = channel;
  options.saved_plan = away_behind_first_lasting(planned.plan_file());
  TrainingStep step(loss, {net.first, net.second}, {}, options);
  step(net.batch);
  ASSERT_TRUE(step.report().from_saved_plan);
  step(net.batch);
  const Tensor before = net.second.detach().clone();
  channel->failing = channel->requests();
  const std::string error = what_it_throws([&] { step(net.batch); });
  EXPECT_NE(error.find("had begun and cannot be undone"), std::string::npos) << error;
  // Once: the gradient of the second is what tanh makes of the first, which has not been updated.
  const Tensor gradient = (net.first.detach() * net.batch[0]).tanh();
  EXPECT_TRUE(at::allclose(net.second.detach(), before - gradient));
}

// As above where the function is no longer called.
TEST(MovesFaults, ARepeatedStepEndsTheSame) {
  const TwoParameters net;
  const StepFunction function = [&](const Batch& each) {
    const Tensor loss = net.loss(each);
    loss.backward();
    return Batch{loss.detach()};
  };
  net.first.mutable_grad() = torch::zeros_like(net.first);
  net.second.mutable_grad() = torch::zeros_like(net.second);
  StepOptions options = quick(std::make_shared<FakeChannel>());
  options.strategy = "keep_all";
  Step planned(function, options);
  planned(net.batch);
  const auto channel = std::make_shared<FakeChannel>();
  options.execute.channel = channel;
  options.follow = 0;
  options.saved_plan = away_behind_first_lasting(planned.plan_file());
  Step step(function, options);
  for (int i = 0; i < 3; ++i) step(net.batch);
  channel->failing = channel->requests();
  const std::string error = what_it_throws([&] { step(net.batch); });
  EXPECT_NE(error.find("had begun and cannot be undone"), std::string::npos) << error;
}

// Wherever it fails: undone and run without the channel, with the same bits, or ended with an error.
TEST(MovesFaults, AStepWithItsUpdateInsideIsRunOnceOrEnds) {
  const Problem problem = testing::wide_net();
  const auto trained = [&](const std::shared_ptr<FakeChannel>& channel, int64_t budget_bytes, std::string& error) {
    std::vector<Tensor> before;
    for (const Tensor& each : problem.parameters) before.push_back(each.detach().clone());
    torch::manual_seed(9);
    torch::optim::SGD optimizer(problem.parameters, torch::optim::SGDOptions(0.05));
    TrainingStepOptions options = quick(channel);
    options.budget_bytes = budget_bytes;
    options.update = [&] { optimizer.step(); };
    TrainingStep step(problem.loss, problem.parameters, problem.buffers, options);
    error = what_it_throws([&] {
      for (const Batch& batch : problem.batches) step(batch);
    });
    std::vector<Tensor> after;
    const at::NoGradGuard no_gradients;
    for (size_t i = 0; i < before.size(); ++i) {
      after.push_back(problem.parameters[i].detach().clone());
      Tensor(problem.parameters[i]).copy_(before[i]);
      Tensor(problem.parameters[i]).mutable_grad().reset();
    }
    if (budget_bytes == kNoBudget) {
      const StepReport report = step.report();
      after.push_back(at::scalar_tensor(report.floor_bytes + (report.keep_all_peak_bytes - report.floor_bytes) / 4,
                                        at::kLong));
    }
    return after;
  };
  std::string error;
  std::vector<Tensor> plain = trained(std::make_shared<FakeChannel>(), kNoBudget, error);
  const int64_t budget_bytes = plain.back().item<int64_t>();
  plain.pop_back();
  const auto counted = std::make_shared<FakeChannel>();
  ASSERT_TRUE(same_bits(trained(counted, budget_bytes, error), plain));
  ASSERT_EQ(error, "");
  const int64_t requests = counted->requests();
  for (int64_t at = requests / 2; at < requests; at += std::max<int64_t>(1, requests / 8)) {
    SCOPED_TRACE(at);
    const auto channel = std::make_shared<FakeChannel>();
    channel->failing = at;
    const std::vector<Tensor> left = trained(channel, budget_bytes, error);
    if (error.empty()) {
      EXPECT_TRUE(same_bits(left, plain));
    } else {
      EXPECT_TRUE(error.find("cannot be undone") != std::string::npos || error.find("no plan fits") != std::string::npos)
          << error;
    }
  }
}

// Indices that nothing may make again, and that only the end needs: without a channel they are there at the peak.
struct NeedsTheChannel {
  NeedsTheChannel() {
    torch::manual_seed(8);
    weight = torch::randn({256, 1024}).requires_grad_();
    batch = {torch::randn({256, 1024})};
  }
  Tensor loss(const Batch& each) const {
    const Tensor x = F::dropout(weight * each[0], F::DropoutFuncOptions().p(0.3));
    const Tensor found = (each[0].narrow(0, 0, 128) != 0).nonzero();
    const Tensor loss = x.tanh().square().exp().sum();
    const Tensor gradient = torch::autograd::grad({loss}, {weight})[0];
    weight.mutable_grad() = gradient;
    return loss.detach() + found.eq(gradient.sum().to(at::kLong)).sum();
  }
  Tensor weight;
  Batch batch;
};

// The plan is gone and no other fits. A report of it read an empty schedule.
TEST(MovesFaults, AStepThatHasNoPlanWithoutTheChannelSaysSo) {
  const NeedsTheChannel net;
  const StepFunction function = [&](const Batch& each) { return Batch{net.loss(each)}; };
  const auto run = [&](const StepFunction& step) {
    torch::manual_seed(10);
    net.weight.mutable_grad().reset();
    const Tensor loss = step(net.batch).at(0);
    return std::vector<Tensor>{loss.clone(), net.weight.grad().clone(), testing::generator_state()};
  };
  const std::vector<Tensor> plain = run(function);
  int64_t budget_bytes = 0;
  {
    Step step(function, quick(std::make_shared<FakeChannel>()));
    step(net.batch);
    const int64_t with = floor(step.graph()).bytes;
    const int64_t without = floor(without_moves(step.graph())).bytes;
    ASSERT_LT(with, without);
    budget_bytes = (with + without) / 2;
  }
  std::vector<std::string> notices;
  const auto channel = std::make_shared<FakeChannel>();
  StepOptions options = quick(channel, &notices);
  options.budget_bytes = budget_bytes;
  Step step(function, options);
  const StepFunction planned = [&](const Batch& each) { return step(each); };
  int64_t requests = 0;  // of a step
  for (int i = 0; i < 3; ++i) {
    const int64_t before = channel->requests();
    EXPECT_TRUE(same_bits(run(planned), plain));
    requests = channel->requests() - before;
  }
  ASSERT_GT(requests, 0);
  ASSERT_TRUE(notices.empty()) << notices.front();

  channel->failing = channel->requests() + requests - 1;  // the last, when the function has returned
  EXPECT_THROW(run(planned), Infeasible);
  ASSERT_EQ(notices.size(), 1u);
  EXPECT_NE(notices[0].find("without offloading"), std::string::npos) << notices[0];
  // The step itself has run, plainly.
  EXPECT_TRUE(same_bits(net.weight.grad(), plain[1]));
  EXPECT_TRUE(same_bits(testing::generator_state(), plain[2]));
  const StepReport report = step.report();
  EXPECT_EQ(report.budget_bytes, budget_bytes);
  EXPECT_GT(report.floor_bytes, budget_bytes);
  EXPECT_EQ(report.predicted_peak_bytes, 0);
  EXPECT_EQ(report.arena_bytes, 0);
  EXPECT_EQ(report.channel, "");
  EXPECT_TRUE(report.timeline.empty());
  EXPECT_THROW(step.plan(), Error);
  EXPECT_THROW(step.schedule(), Error);
  EXPECT_THROW(run(planned), Infeasible);

  step.set_budget_bytes(report.keep_all_peak_bytes * 2);
  EXPECT_TRUE(same_bits(run(planned), plain));
  EXPECT_EQ(step.report().measured_peak_bytes, step.report().predicted_peak_bytes);
  EXPECT_THROW(step.set_budget_bytes(budget_bytes), Infeasible);
  EXPECT_TRUE(same_bits(run(planned), plain));
}

}  // namespace
}  // namespace remat
