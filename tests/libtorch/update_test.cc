// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "remat/core/error.h"
#include "remat/core/verify.h"
#include "remat/libtorch/training_step.h"
#include "tests/libtorch/named_tensors.h"

// The update inside of the step: the bits of the plain loop, whatever optimizer, clipping and zero_grad;
// gradients that die when they are applied; exceptions between any two ops of the update.

namespace remat {
namespace {

namespace F = torch::nn::functional;
using at::Tensor;
using testing::add_numbered;
using testing::cloned;
using testing::difference;
using testing::NamedTensors;

constexpr int kSteps = 5;

StepOptions quick(int64_t budget_bytes = kNoBudget) {
  return {.budget_bytes = budget_bytes,
          .plan_seconds = 0.2,
          .measure_seconds = 0,
          .execute = {.poison = true}};
}

// A language model as small as it can be: its embedding is tied to its output.
struct TiedNet {
  explicit TiedNet(int64_t words = 50, int64_t width = 12, int64_t of_tokens = 16) : tokens(of_tokens) {
    torch::manual_seed(3);
    embedding = torch::nn::Embedding(words, width);
    middle = torch::nn::Sequential(torch::nn::Linear(width, width), torch::nn::Tanh(),
                                   torch::nn::Linear(width, width), torch::nn::Tanh(),
                                   torch::nn::Linear(width, width));
    norm = torch::nn::LayerNorm(torch::nn::LayerNormOptions({width}));
    for (const auto& parameters : {embedding->parameters(), middle->parameters(), norm->parameters()}) {
      all.insert(all.end(), parameters.begin(), parameters.end());
    }
  }
  Tensor loss(const Batch& batch) {
    const Tensor x = norm->forward(torch::tanh(middle->forward(embedding->forward(batch[0]))));
    return F::cross_entropy(at::linear(x, embedding->weight), batch[1]);
  }
  Batch batch(int number) const {
    const int64_t words = embedding->weight.size(0);
    at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(100 + number);
    const auto longs = torch::dtype(at::kLong);
    return {torch::randint(words, {tokens}, generator, longs), torch::randint(words, {tokens}, generator, longs)};
  }

  torch::nn::Embedding embedding{nullptr};
  torch::nn::Sequential middle{nullptr};
  torch::nn::LayerNorm norm{nullptr};
  std::vector<Tensor> all;
  int64_t tokens;  // in a batch
};

// An update with its own state; called once per step, after backward.
struct Update {
  std::function<void()> apply;
  std::function<std::vector<Tensor>()> state = [] { return std::vector<Tensor>(); };
};
using MakeUpdate = std::function<Update(const std::vector<Tensor>&)>;

template <typename Optimizer, typename Options>
MakeUpdate of_torch(Options options) {
  return [options](const std::vector<Tensor>& parameters) {
    const auto optimizer = std::make_shared<Optimizer>(parameters, options);
    return Update{[optimizer] { optimizer->step(); }};
  };
}

// LibTorch's fused and foreach ops, over all parameters at once.
Update fused_adamw(const std::vector<Tensor>& parameters) {
  struct State {
    std::vector<Tensor> parameters, first, second, steps;
  };
  const auto state = std::make_shared<State>();
  for (const Tensor& parameter : parameters) {
    state->parameters.push_back(parameter);
    state->first.push_back(torch::zeros_like(parameter));
    state->second.push_back(torch::zeros_like(parameter));
    state->steps.push_back(torch::zeros({}));
  }
  return {[state] {
            const at::NoGradGuard no_gradients;
            std::vector<Tensor> gradients;
            for (const Tensor& each : state->parameters) {
              gradients.push_back(each.grad());
            }
            at::_foreach_add_(state->steps, 1);
            at::_fused_adamw_(state->parameters, gradients, state->first, state->second, {},
                              state->steps, 0.01, 0.9, 0.99, 0.1, 1e-8, false, false);
          },
          [state] {
            std::vector<Tensor> all = state->first;
            all.insert(all.end(), state->second.begin(), state->second.end());
            return all;
          }};
}

Update foreach_momentum(const std::vector<Tensor>& parameters) {
  const auto velocities = std::make_shared<std::vector<Tensor>>();
  for (const Tensor& parameter : parameters) {
    velocities->push_back(torch::zeros_like(parameter));
  }
  return {[parameters, velocities] {
            const at::NoGradGuard no_gradients;
            std::vector<Tensor> gradients;
            for (const Tensor& each : parameters) {
              gradients.push_back(each.grad());
            }
            const std::vector<Tensor> decayed = at::_foreach_add(gradients, parameters, 0.01);
            at::_foreach_mul_(*velocities, 0.9);
            at::_foreach_add_(*velocities, decayed);
            std::vector<at::Scalar> rates;  // another for each parameter and step
            for (size_t i = 0; i < parameters.size(); ++i) {
              rates.emplace_back(-0.01 * static_cast<double>(i + 1));
            }
            const std::vector<Tensor> moved = at::_foreach_mul(*velocities, rates);
            at::_foreach_add_(parameters, moved);
          },
          [velocities] { return *velocities; }};
}

struct NamedUpdate {
  std::string name;
  MakeUpdate make;
};
const std::vector<NamedUpdate>& updates() {
  namespace optim = torch::optim;
  static const std::vector<NamedUpdate> all = {
      {"SGD", of_torch<optim::SGD>(optim::SGDOptions(0.1).momentum(0.9).weight_decay(0.01))},
      {"Adam", of_torch<optim::Adam>(optim::AdamOptions(0.01).weight_decay(0.01))},
      {"AdamW", of_torch<optim::AdamW>(optim::AdamWOptions(0.01))},
      {"AdamWAmsgrad", of_torch<optim::AdamW>(optim::AdamWOptions(0.01).amsgrad(true))},
      {"RMSprop", of_torch<optim::RMSprop>(optim::RMSpropOptions(0.01).momentum(0.5).centered(true))},
      {"Adagrad", of_torch<optim::Adagrad>(optim::AdagradOptions(0.05))},
      {"FusedAdamW", fused_adamw},
      {"ForeachMomentum", foreach_momentum},
  };
  return all;
}

enum class Clipping : uint8_t { none, value, norm };

// One model with its update, trained by `step`.
struct Trainer {
  Trainer(const MakeUpdate& make, Clipping clipping, int64_t words = 50, int64_t width = 12, int64_t tokens = 16)
      : net(words, width, tokens), update(make(net.all)), clips(clipping) {}
  void apply() {
    if (clips == Clipping::value) {
      torch::nn::utils::clip_grad_value_(net.all, 0.01);
    } else if (clips == Clipping::norm) {
      torch::nn::utils::clip_grad_norm_(net.all, 0.1);
    }
    update.apply();
  }
  Tensor plain_step(const Batch& batch) {
    const Tensor loss = net.loss(batch);
    loss.backward();
    apply();
    for (const Tensor& parameter : net.all) {
      parameter.mutable_grad().reset();
    }
    return loss.detach();
  }
  NamedTensors after(const Tensor& loss) {
    NamedTensors state = {{"loss", loss}};
    add_numbered(state, "parameter", net.all);
    add_numbered(state, "state", update.state());
    return cloned(std::move(state));
  }
  TrainingStep step(StepOptions options) {
    options.update = [this] { apply(); };
    return TrainingStep([this](const Batch& batch) { return net.loss(batch); }, net.all, {},
                        std::move(options));
  }

  TiedNet net;
  Update update;
  Clipping clips;
};

// Five steps of both; the report of the planned ones.
StepReport expect_trains_the_same(const MakeUpdate& make, Clipping clipping, int64_t budget_bytes,
                                  int64_t words = 50, int64_t width = 12, int64_t tokens = 16) {
  Trainer plain(make, clipping, words, width, tokens), planned(make, clipping, words, width, tokens);
  TrainingStep step = planned.step(quick(budget_bytes));
  for (int i = 0; i < kSteps; ++i) {
    const NamedTensors expected = plain.after(plain.plain_step(plain.net.batch(i)));
    EXPECT_EQ(difference(expected, planned.after(step(planned.net.batch(i)))), "") << "step " << i;
    for (const Tensor& parameter : planned.net.all) {
      EXPECT_FALSE(parameter.grad().defined());
    }
  }
  const StepReport report = step.report();
  EXPECT_EQ(report.measured_peak_bytes, report.predicted_peak_bytes);
  EXPECT_EQ(report.counts.outside_allocations, 0);
  EXPECT_LE(report.peak_bytes, budget_bytes);
  EXPECT_GE(report.planned_steps, 3);
  const auto by_role = [&](Role role) { return report.external_bytes_by_role[static_cast<size_t>(role)]; };
  EXPECT_EQ(by_role(Role::gradient), 0);
  EXPECT_EQ(by_role(Role::temporary), 0) << "a copy of what the update writes";
  EXPECT_GE(by_role(Role::optimizer_state), by_role(Role::param));
  EXPECT_EQ(std::accumulate(report.external_bytes_by_role.begin(), report.external_bytes_by_role.end(),
                            int64_t{0}),
            report.external_bytes);
  const auto violation = verify(step.graph(), step.schedule(), budget_bytes);
  EXPECT_FALSE(violation.has_value()) << violation->reason;
  return report;
}

class UpdateInside : public ::testing::TestWithParam<size_t> {};

TEST_P(UpdateInside, TrainsAsThePlainLoop) {
  const NamedUpdate& update = updates()[GetParam()];
  for (const Clipping clipping : {Clipping::none, Clipping::value, Clipping::norm}) {
    SCOPED_TRACE(static_cast<int>(clipping));
    const StepReport free = expect_trains_the_same(update.make, clipping, kNoBudget);
    const int64_t tight = free.floor_bytes + (free.keep_all_peak_bytes - free.floor_bytes) / 4;
    expect_trains_the_same(update.make, clipping, tight);
  }
}

// Every gradient would be there at a call over all parameters.
TEST_P(UpdateInside, NeedsLessThanTheUpdateOutside) {
  const MakeUpdate& make = updates()[GetParam()].make;
  constexpr int64_t kWords = 10, kWidth = 64;
  const StepReport inside =
      expect_trains_the_same(make, Clipping::value, kNoBudget, kWords, kWidth);
  Trainer outside(make, Clipping::none, kWords, kWidth);
  TrainingStep step([&](const Batch& batch) { return outside.net.loss(batch); }, outside.net.all, {},
                    quick());
  step(outside.net.batch(0));
  const auto state = inside.external_bytes_by_role[static_cast<size_t>(Role::optimizer_state)];
  EXPECT_LT(inside.floor_bytes, step.report().floor_bytes + state);
}

INSTANTIATE_TEST_SUITE_P(All, UpdateInside, ::testing::Range(size_t{0}, updates().size()),
                         [](const auto& instance) { return updates()[instance.param].name; });

// 38 MiB: made, added up and applied by rows.
TEST(UpdateInside, LargeGradientsAreNeverThereAsAWhole) {
  constexpr int64_t kWords = 13'000, kWidth = 768, kBytes = kWords * kWidth * 4;
  for (const size_t which : {size_t{0}, size_t{2}, size_t{6}}) {
    SCOPED_TRACE(updates()[which].name);
    const MakeUpdate& make = updates()[which].make;
    const StepReport free = expect_trains_the_same(make, Clipping::none, kNoBudget, kWords, kWidth);
    EXPECT_LT(free.floor_bytes, free.external_bytes + kBytes);
    expect_trains_the_same(make, Clipping::value, free.floor_bytes + free.floor_bytes / 20, kWords,
                           kWidth);
  }
}

// As above, but the norm is taken of the whole.
TEST(UpdateInside, LargeGradientsThatOthersSeeStayWhole) {
  const StepReport report =
      expect_trains_the_same(updates()[2].make, Clipping::norm, kNoBudget, 13'000, 768);
  EXPECT_GT(report.floor_bytes, report.external_bytes + int64_t{13'000} * 768 * 4);
}

// Logits of 35 MiB: what backward makes of them lies where they were.
TEST(UpdateInside, LargeLogitsAreThereOnce) {
  constexpr int64_t kWords = 13'000, kWidth = 64, kTokens = 705, kBytes = kWords * kTokens * 4;
  const MakeUpdate& make = updates()[2].make;
  const StepReport free = expect_trains_the_same(make, Clipping::none, kNoBudget, kWords, kWidth, kTokens);
  EXPECT_LT(free.floor_bytes, free.external_bytes + kBytes + kBytes / 2);
  EXPECT_GT(free.floor_bytes, free.external_bytes + kBytes);
  expect_trains_the_same(make, Clipping::none, free.floor_bytes + free.floor_bytes / 50, kWords, kWidth, kTokens);
}

enum class Zeroing : uint8_t { before, after, after_in_place };

// The whole step as one function, with zero_grad where the user put it.
TEST(UpdateInside, ZeroGradAsTheUserWroteIt) {
  for (const Zeroing zeroing : {Zeroing::before, Zeroing::after, Zeroing::after_in_place}) {
    SCOPED_TRACE(static_cast<int>(zeroing));
    const auto function = [zeroing](TiedNet& net, torch::optim::AdamW& optimizer) {
      return [&net, &optimizer, zeroing](const Batch& batch) -> Batch {
        if (zeroing == Zeroing::before) {
          optimizer.zero_grad();
        }
        const Tensor loss = net.loss(batch);
        loss.backward();
        optimizer.step();
        if (zeroing != Zeroing::before) {
          optimizer.zero_grad(zeroing == Zeroing::after);
        }
        return {loss.detach()};
      };
    };
    TiedNet plain, planned;
    torch::optim::AdamW plain_optimizer(plain.all), planned_optimizer(planned.all);
    const auto plain_step = function(plain, plain_optimizer);
    Step step(function(planned, planned_optimizer), quick());
    for (int i = 0; i < kSteps + 2; ++i) {
      const auto state = [](const TiedNet& net, const Batch& results) {
        NamedTensors all;
        add_numbered(all, "result", results);
        add_numbered(all, "parameter", net.all);
        for (const Tensor& parameter : net.all) {
          all.emplace_back("gradient", parameter.grad());
        }
        return cloned(std::move(all));
      };
      const NamedTensors expected = state(plain, plain_step(plain.batch(i)));
      EXPECT_EQ(difference(expected, state(planned, step(planned.batch(i)))), "") << "step " << i;
    }
    EXPECT_GE(step.report().planned_steps, 3);
  }
}

// AdamW by hand, statement by statement; throws before the n-th.
struct HandWritten {
  explicit HandWritten(const std::vector<Tensor>& all) : parameters(all) {
    for (const Tensor& parameter : all) {
      first.push_back(torch::zeros_like(parameter));
      second.push_back(torch::zeros_like(parameter));
    }
  }
  void tick() {
    if (statement++ == throw_at) {
      throw std::runtime_error("thrown before op " + std::to_string(throw_at) + " of the update");
    }
  }
  void apply() {
    const at::NoGradGuard no_gradients;
    statement = 0;
    ++steps;
    for (size_t i = 0; i < parameters.size(); ++i) {
      const Tensor gradient = parameters[i].grad();
      tick();
      parameters[i].mul_(0.999);
      tick();
      first[i].mul_(0.9);
      tick();
      first[i].add_(gradient, 0.1);
      tick();
      second[i].mul_(0.99);
      tick();
      second[i].addcmul_(gradient, gradient, 0.01);
      tick();
      Tensor root = second[i].sqrt();
      tick();
      root = root / (1 - std::pow(0.99, steps));
      tick();
      root.add_(1e-8);
      tick();
      parameters[i].addcdiv_(first[i], root, -0.01 / (1 - std::pow(0.9, steps)));
    }
    tick();
  }
  std::vector<Tensor> parameters, first, second;
  int statement = 0, throw_at = -1, steps = 0;
};

TEST(UpdateInside, ExceptionsBetweenItsOpsLoseNothing) {
  const auto make = [](std::shared_ptr<HandWritten>& hand) {
    return [&hand](const std::vector<Tensor>& parameters) {
      hand = std::make_shared<HandWritten>(parameters);
      return Update{[hand] { hand->apply(); }, [hand] {
                      std::vector<Tensor> all = hand->first;
                      all.insert(all.end(), hand->second.begin(), hand->second.end());
                      for (const Tensor& parameter : hand->parameters) {
                        all.push_back(parameter.grad());
                      }
                      return all;
                    }};
    };
  };
  std::shared_ptr<HandWritten> plain_hand, planned_hand;
  Trainer plain(make(plain_hand), Clipping::none), planned(make(planned_hand), Clipping::none);
  TrainingStep step = planned.step(quick());
  int number = 0;
  const auto run = [](const std::function<Tensor()>& call, std::string& thrown) {
    try {
      return call();
    } catch (const std::exception& error) {
      thrown = testing::first_line(error);
      return Tensor();
    }
  };
  const auto expect_same = [&](int throw_at) {
    plain_hand->throw_at = planned_hand->throw_at = throw_at;
    std::string expected_error, error;
    const Batch batch = plain.net.batch(number);
    const Tensor expected = run([&] { return plain.plain_step(batch); }, expected_error);
    const Tensor found = run([&] { return step(planned.net.batch(number)); }, error);
    EXPECT_EQ(error, expected_error);
    EXPECT_EQ(error.empty(), throw_at < 0);
    EXPECT_EQ(difference(plain.after(expected), planned.after(found)), "")
        << "step " << number << ", op " << throw_at;
    for (Trainer* each : {&plain, &planned}) {  // as a program would that goes on with the next batch
      for (const Tensor& parameter : each->net.all) {
        parameter.mutable_grad().reset();
      }
    }
    ++number;
  };
  for (int i = 0; i < 3; ++i) {
    expect_same(-1);
  }
  const int64_t planned_before = step.report().planned_steps;
  const int statements = plain_hand->statement;
  ASSERT_EQ(statements, 82);
  for (int k = 0; k < statements; ++k) {
    expect_same(k);
    expect_same(-1);
  }
  EXPECT_EQ(step.report().planned_steps, planned_before + statements);
}

TEST(UpdateInside, IsRefusedByAStep) {
  StepOptions options = quick();
  options.update = [] {};
  EXPECT_THROW(Step([](const Batch& batch) { return batch; }, options), Error);
}

}  // namespace
}  // namespace remat
