// SPDX-License-Identifier: Apache-2.0
#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <memory>
#include <string>

#include "remat/libtorch/checkpoint.h"
#include "remat/libtorch/policy.h"
#include "tests/libtorch/testing.h"
#include "tests/testing/counting_allocator.h"

// Running a region twice must be the same as running it once, bit for bit: random numbers, state
// that the region changes, thread-local modes, and what a policy keeps.

namespace remat {
namespace {

using at::Tensor;
using testing::same_bits;

using Function = std::function<Tensor(const Tensor&)>;

struct Outcome {
  std::vector<Tensor> values;
  friend bool operator==(const Outcome& a, const Outcome& b) {
    return same_bits(a.values, b.values);
  }
};

// Output, gradient, the generator's state and the given state after forward and backward.
Outcome run(const Function& forward, const std::vector<Tensor>& state = {}) {
  torch::manual_seed(1);
  Tensor x = torch::randn({8, 6}).requires_grad_();
  const Tensor y = forward(x);
  Outcome outcome{{y.detach().clone(), testing::generator_state()}};
  y.square().sum().backward();
  outcome.values.push_back(x.grad());
  outcome.values.push_back(testing::generator_state());
  for (const Tensor& s : state) {
    outcome.values.push_back(s.detach().clone());
  }
  return outcome;
}

Function checkpointed(const Function& fn, const CheckpointOptions& options = {}) {
  return [fn, options](const Tensor& x) { return checkpoint(fn, x, options); };
}

TEST(Exact, DropoutDrawsTheSameMask) {
  const Function fn = [](const Tensor& x) {
    return at::dropout(at::dropout(x.exp(), 0.3, true).sin(), 0.5, true);
  };
  EXPECT_EQ(run(fn), run(checkpointed(fn)));
}

// Ops with and without a generator argument, and a count of normal numbers that leaves one cached.
TEST(Exact, EveryKindOfRandomOp) {
  const Function fn = [](const Tensor& x) {
    Tensor y = x * torch::randn({5})[2] + torch::rand_like(x) + torch::randn_like(x);
    y = y * torch::randint(1, 5, {6}) + torch::empty({6}).uniform_() + torch::randperm(6);
    y = y * at::bernoulli(torch::full({8, 6}, 0.5)) + torch::empty({3}).normal_()[0];
    y = y * std::get<0>(at::native_dropout(x, 0.25, true));
    return at::rrelu(y, 0.1, 0.4, /*training=*/true) * at::multinomial(torch::ones({6}), 6).exp();
  };
  EXPECT_EQ(run(fn), run(checkpointed(fn)));
}

TEST(Exact, GeneratorsOfTheUsersOwn) {
  const auto make = [] {
    auto generator = at::detail::createCPUGenerator(42);
    return std::pair(generator, Function([generator](const Tensor& x) {
                       return at::bernoulli(torch::full({8, 6}, 0.5), generator) * x.exp() +
                              torch::randn({6}) * x;
                     }));
  };
  auto [plain_generator, plain] = make();
  auto [our_generator, ours] = make();
  EXPECT_EQ(run(plain), run(checkpointed(ours)));
  EXPECT_TRUE(same_bits(plain_generator.get_state(), our_generator.get_state()));
}

// Draws between forward and backward, and between two regions, belong to the program.
TEST(Exact, DrawsOutsideTheRegionAreLeftAlone) {
  const Function fn = [](const Tensor& x) { return at::dropout(x.exp(), 0.5, true); };
  const auto program = [](const Function& block) -> Function {
    return [block](const Tensor& x) {
      const Tensor a = block(x);
      const Tensor noise = torch::randn({7});
      return block(a.tanh()) + noise[0];
    };
  };
  EXPECT_EQ(run(program(fn)), run(program(checkpointed(fn))));
}

torch::nn::BatchNorm1d batch_norm(bool cumulative) {
  auto options = torch::nn::BatchNorm1dOptions(6);
  if (cumulative) {
    options.momentum(std::nullopt);
  }
  return torch::nn::BatchNorm1d(options);
}

class BatchNorm : public ::testing::TestWithParam<bool> {};

// Twice per step: the second call's first run sees what the first one left.
TEST_P(BatchNorm, StatisticsAreUpdatedOncePerCall) {
  auto plain = batch_norm(GetParam());
  auto ours = batch_norm(GetParam());
  const auto twice = [](torch::nn::BatchNorm1d norm) -> Function {
    return [norm](const Tensor& x) mutable { return norm(norm(x).exp()); };
  };
  for (int step = 0; step < 3; ++step) {
    EXPECT_EQ(run(twice(plain), plain->buffers()), run(checkpointed(twice(ours)), ours->buffers()));
  }
  EXPECT_EQ(ours->num_batches_tracked.item<int64_t>(), 6);
  ours->eval();
  plain->eval();
  EXPECT_EQ(run(twice(plain), plain->buffers()), run(checkpointed(twice(ours)), ours->buffers()));
}
INSTANTIATE_TEST_SUITE_P(Momentum, BatchNorm, ::testing::Values(false, true));

// A region that reads its state before and after changing it, twice in one step: each re-run must
// see the values of its own first run, not the latest ones.
TEST(Exact, StateReadAndChangedInTheRegion) {
  const auto twice = [](Function fn) -> Function {
    return [fn](const Tensor& x) { return fn(fn(x).tanh()); };
  };
  const Tensor plain = torch::ones({6});
  const Tensor ours = torch::ones({6});
  // Clones, because autograd refuses to save what is changed later.
  const auto saved_copy = [](const Tensor& state) -> Function {
    return [state](const Tensor& x) {
      Tensor y = x.exp() * state.clone();
      {
        torch::NoGradGuard no_grad;
        Tensor buffer = state;
        buffer.mul_(0.9).add_(x.mean(0), 0.1);
        buffer.view({2, 3})[1].add_(1);
      }
      return y + x * state.clone() + state.slice(0, 2, 5).clone().sum() * x;
    };
  };
  EXPECT_EQ(run(twice(saved_copy(plain)), {plain}),
            run(twice(checkpointed(saved_copy(ours))), {ours}));
}

// Went wrong once in every version that writes to the tensor itself: the version moved, and another
// graph that had saved the tensor refused to use it.
// A parameter that the forward changes before it reads it.
TEST(Exact, EmbeddingThatRenormalisesItsTable) {
  const auto train = [](bool ours) {
    torch::manual_seed(1);
    torch::nn::Embedding table(torch::nn::EmbeddingOptions(6, 4).max_norm(0.5));
    auto fn = [table](const Tensor& rows) mutable { return table(rows).exp(); };
    const Tensor rows = torch::tensor({1, 2, 1});
    (ours ? checkpoint(fn, rows) : fn(rows)).square().sum().backward();
    return std::vector<Tensor>{table->weight.grad(), table->weight.detach()};
  };
  EXPECT_TRUE(same_bits(train(false), train(true)));
}

TEST(Exact, VersionsOfOutsideTensorsAreLeftAlone) {
  torch::nn::BatchNorm1d norm(6);
  Tensor x = torch::randn({8, 6}).requires_grad_();
  const Tensor y = checkpoint(norm, x.exp());
  const auto version = norm->running_mean._version();
  const Tensor other = norm->running_mean * x;
  y.sum().backward();
  EXPECT_EQ(norm->running_mean._version(), version);
  EXPECT_NO_THROW(other.sum().backward());
}

TEST(Exact, AutocastHoldsInTheRerun) {
  torch::manual_seed(2);
  torch::nn::Sequential model(torch::nn::Linear(6, 6), torch::nn::GELU(), torch::nn::Linear(6, 6));
  const Function plain = [model](const Tensor& x) mutable {
    return model->forward(model->forward(x));
  };
  const auto under_autocast = [](Function fn) -> Function {
    return [fn](const Tensor& x) {
      at::autocast::increment_nesting();
      at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
      at::autocast::set_autocast_enabled(at::kCPU, true);
      const Tensor y = fn(x);
      at::autocast::set_autocast_enabled(at::kCPU, false);
      if (at::autocast::decrement_nesting() == 0) {
        at::autocast::clear_cache();
      }
      EXPECT_EQ(y.scalar_type(), at::kBFloat16);
      return y.to(at::kFloat);
    };
  };
  const Outcome expected = run(under_autocast(plain));
  const auto gradients = testing::take_gradients(model->parameters());
  for (const CheckpointOptions& options :
       {CheckpointOptions{}, CheckpointOptions{.policy = keep_matmuls_and_convolutions()}}) {
    EXPECT_EQ(expected, run(under_autocast(checkpointed(plain, options))));
    EXPECT_TRUE(same_bits(gradients, testing::take_gradients(model->parameters())));
    EXPECT_FALSE(at::autocast::is_autocast_enabled(at::kCPU));
  }
}

// backward runs with gradients off, and may be called under no_grad.
TEST(Exact, GradModeOfTheForwardHoldsInTheRerun) {
  const Function fn = [](const Tensor& x) {
    EXPECT_TRUE(torch::GradMode::is_enabled());
    EXPECT_FALSE(c10::InferenceMode::is_enabled());
    return x.exp().sin();
  };
  Tensor x = torch::ones({3}).requires_grad_();
  Tensor y = checkpoint(fn, x).sum();
  {
    torch::NoGradGuard no_grad;
    y.backward();
  }
  EXPECT_TRUE(x.grad().defined());
}

// Counts the calls of an op, by name, that reach a policy.
struct CountedPolicy {
  std::shared_ptr<int> seen = std::make_shared<int>(0);
  Policy keep(const std::string& name) const {
    return keep_if([seen = seen, name](const OpCall& call) {
      *seen += call.name == name;
      return call.name == name;
    });
  }
};

torch::nn::Sequential mlp() {
  torch::manual_seed(3);
  return torch::nn::Sequential(torch::nn::Linear(6, 12), torch::nn::GELU(), torch::nn::Dropout(0.5),
                               torch::nn::BatchNorm1d(12), torch::nn::Linear(12, 6),
                               torch::nn::ReLU(torch::nn::ReLUOptions(true)));
}

TEST(Policy, EveryPolicyGivesTheSameBits) {
  const auto forward = [](torch::nn::Sequential model) -> Function {
    return [model](const Tensor& x) mutable { return model->forward(x) * torch::rand_like(x); };
  };
  auto plain = mlp();
  const Outcome expected = run(forward(plain), plain->buffers());
  const auto gradients = testing::take_gradients(plain->parameters());
  const std::vector<Policy> policies = {
      keep_matmuls_and_convolutions(),
      keep_attention(),
      keep_if([](const OpCall&) { return true; }),
      keep_ops({"aten::native_batch_norm", "aten::gelu"}),
      keep_ops({"aten::rand_like", "aten::bernoulli_", "aten::empty_like"}),
      keep_either(keep_ops({"aten::mul"}), keep_matmuls_and_convolutions())};
  for (const Policy& policy : policies) {
    auto ours = mlp();
    EXPECT_EQ(expected, run(checkpointed(forward(ours), {.policy = policy}), ours->buffers()));
    EXPECT_TRUE(same_bits(gradients, testing::take_gradients(ours->parameters())));
  }
}

TEST(Policy, KeptResultsCostMemoryAndAreFreedByBackward) {
  constexpr int64_t kBytes = 4 * 256 * 256;
  testing::live_bytes();
  Tensor x = torch::randn({256, 256}).requires_grad_();
  const Function fn = [](const Tensor& a) { return a.mm(a).sin().mm(a).exp().mm(a).tanh(); };
  const int64_t before = testing::live_bytes();
  Tensor y = checkpoint(fn, x, {.policy = keep_ops({"aten::mm"})});
  const int64_t kept = testing::live_bytes() - before;
  EXPECT_GE(kept, 4 * kBytes);  // three products and the output
  EXPECT_LT(kept, 5 * kBytes);
  y = y.sum();
  y.backward();
  EXPECT_LT(testing::live_bytes() - before, 2 * kBytes);  // the gradient
}

TEST(Policy, IsAskedInTheFirstRunOnlyAndSeesArguments) {
  const CountedPolicy policy;
  Tensor x = torch::randn({4, 4}).requires_grad_();
  checkpoint([](const Tensor& a) { return a.mm(a).exp(); }, x, {.policy = policy.keep("aten::mm")})
      .sum()
      .backward();
  EXPECT_EQ(*policy.seen, 1);
  bool wide = false;
  checkpoint([](const Tensor& a) { return a.mm(a).exp(); }, x,
             {.policy = keep_if([&wide](const OpCall& call) {
                wide =
                    wide || (call.name == "aten::mm" && call.arguments[0].toTensor().size(1) == 4);
                return false;
              })})
      .sum()
      .backward();
  EXPECT_TRUE(wide);
}

// A kept result that is overwritten is not what the op returned: it must be recomputed.
TEST(Policy, KeptResultChangedInPlaceIsRecomputed) {
  const Function fn = [](const Tensor& x) { return x.mm(x.t()).add_(1).exp(); };
  EXPECT_EQ(run(fn), run(checkpointed(fn, {.policy = keep_ops({"aten::mm"})})));
  const Function outside = [](const Tensor& x) {
    return checkpoint([](const Tensor& a) { return a.exp().mm(a.t()); }, x,
                      {.policy = keep_ops({"aten::mm"})})
        .mul_(3);
  };
  const Function plain = [](const Tensor& x) { return x.exp().mm(x.t()).mul_(3); };
  EXPECT_EQ(run(plain), run(outside));
}

TEST(Policy, RetainGraphUsesKeptResultsAgain) {
  Tensor x = torch::randn({4, 4}).requires_grad_();
  const Function fn = [](const Tensor& a) { return a.mm(a).sin().mm(a).exp(); };
  const Tensor y = checkpoint(fn, x, {.policy = keep_ops({"aten::mm"})}).sum();
  y.backward({}, true);
  y.backward();
  const Tensor expected = torch::autograd::grad({fn(x).sum()}, {x})[0];
  EXPECT_TRUE(same_bits(x.grad(), expected + expected));
}

TEST(Policy, NestedInARegionWithAPolicy) {
  const Function inner = [](const Tensor& x) { return x.mm(x.t()).sin().mm(x); };
  const Function plain = [inner](const Tensor& x) { return inner(inner(x).tanh()); };
  const CheckpointOptions keep{.policy = keep_ops({"aten::mm"})};
  const Function ours = checkpointed(
      [inner, keep](const Tensor& x) {
        return checkpoint(inner, checkpoint(inner, x, keep).tanh());
      },
      keep);
  EXPECT_EQ(run(plain), run(ours));
}

TEST(Policy, AttentionIsKept) {
  const CountedPolicy policy;
  const Function attention = [](const Tensor& x) {
    const Tensor q = x.view({1, 2, 8, 3});
    return at::scaled_dot_product_attention(q, q, q, {}, 0.0, true).view({8, 6});
  };
  EXPECT_EQ(run(attention), run(checkpointed(attention, {.policy = keep_attention()})));
  bool found = false;
  run(checkpointed(attention, {.policy = [&found](const OpCall& call) {
                     found = found || keep_attention()(call) == OpChoice::keep;
                     return OpChoice::recompute;
                   }}));
  EXPECT_TRUE(found);
}

}  // namespace
}  // namespace remat
