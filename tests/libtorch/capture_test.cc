// SPDX-License-Identifier: Apache-2.0
#include "remat/libtorch/capture.h"

#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>

#include "remat/libtorch/checkpoint.h"
#include "remat/libtorch/scope.h"
#include "tests/libtorch/capture_fixture.h"
#include "tests/libtorch/tiny_zoo.h"

// What a loss function may do. Whatever is captured is trained with everything kept, at the least
// memory, and with everything recomputed. What it may not do: capture_refusals_test.cc.

namespace remat {
namespace {

namespace F = torch::nn::functional;
using at::Tensor;
using testing::batches;
using testing::capture_error;
using testing::expect_contains;
using testing::expect_trains_the_same;
using testing::module_problem;
using testing::parameter;
using testing::Problem;
using Capture = testing::CaptureFixture;

TEST_F(Capture, TensorListsAndOptionalLists) {
  expect_trains_the_same(on_matrix([](const Tensor& h, const Batch&) {
    const Tensor a = torch::cat({h, h * 2.0, h.tanh()}, 0);
    const Tensor b = torch::stack({h.sin(), h}, 1);
    const Tensor rows = torch::tensor({2, 0, 0, 3});
    const Tensor picked = h.index({rows, torch::indexing::Slice(1, 3)});
    const Tensor both = h.index({rows, torch::tensor({0, 1, 1, 2})});
    return a.pow(2).sum() + b.exp().mean() + picked.sin().sum() + both.cos().sum();
  }));
}

TEST_F(Capture, SaysHowFarItIs) {
  const Problem problem = on_matrix([](const Tensor& h, const Batch&) { return h.exp().tanh().sum(); });
  std::vector<std::pair<int64_t, int64_t>> said;
  const Recording recording =
      capture(problem.loss, problem.batches[0], problem.parameters,
              {.progress = [&](int64_t done, int64_t total) { said.emplace_back(done, total); }});
  // Ops of the first run, of which nobody knows how many there will be; then those of the second.
  ASSERT_EQ(said.size() % 2, 0u);
  const auto ops = static_cast<int64_t>(said.size() / 2);
  EXPECT_GE(ops, static_cast<int64_t>(recording.graph.ops.size()));
  for (int64_t i = 0; i < 2 * ops; ++i) {
    EXPECT_EQ(said[static_cast<size_t>(i)], std::pair(i + 1, i < ops ? 0 : 2 * ops)) << i;
  }
}

TEST_F(Capture, ForeachOps) {
  expect_trains_the_same(on_matrix([](const Tensor& h, const Batch&) {
    std::vector<Tensor> parts = h.split(2, 0);
    std::vector<Tensor> scaled = at::_foreach_mul(parts, 3.0);
    std::vector<Tensor> sums = at::_foreach_add(scaled, at::_foreach_exp(parts));
    std::vector<Tensor> fresh = {torch::zeros({3}), torch::ones({2, 2})};
    at::_foreach_add_(fresh, 1.5);
    return sums[0].sum() + sums[1].pow(2).sum() + sums[2].mean() * fresh[0].sum() * fresh[1].sum();
  }));
}

TEST_F(Capture, FactoriesAndConstants) {
  expect_trains_the_same(on_matrix([](const Tensor& h, const Batch&) {
    Tensor y = h * torch::arange(4) + torch::zeros({4}) + torch::full({5, 4}, 0.25);
    y = y + torch::ones_like(y) * torch::rand({5, 1}) + torch::randn_like(y) * 0.1;
    y = y * torch::tensor({1.0f, 0.5f, 2.0f, -1.0f}) + torch::linspace(0, 1, 4);
    y = y.masked_fill(torch::eye(5, 4).to(at::kBool), -INFINITY).softmax(1) * 2.0 + 1;
    return (1.0 / y).sum() + torch::scalar_tensor(3.5) * y.mean();
  }));
}

TEST_F(Capture, HostNumbersThatAreNotNumbers) {
  expect_trains_the_same(on_matrix([](const Tensor& h, const Batch&) {
    return torch::nan_to_num(h.masked_fill(torch::eye(5, 4).to(at::kBool), NAN)).sum();
  }));
}

TEST_F(Capture, InPlaceOnViewsAndChains) {
  expect_trains_the_same(on_matrix([](const Tensor& h, const Batch&) {
    Tensor y = h.clone();
    y.select(0, 1).mul_(2.0);
    y.slice(1, 1, 3).add_(h.slice(1, 0, 2)).mul_(0.5);
    y.index_put_({torch::tensor({0, 2})}, torch::ones({2, 4}));
    Tensor z = torch::empty({5, 8});
    z.slice(1, 0, 4).copy_(y);
    z.narrow(1, 4, 4).copy_(h.sigmoid());
    z.neg_().add_(0.5).mul_(z.detach().clone());
    z.t_().unsqueeze_(0);
    return z.squeeze_(0).exp().mean();
  }));
}

TEST_F(Capture, ConstantsInPlaceViews) {
  expect_trains_the_same(on_matrix([](const Tensor& h, const Batch&) {
    return (h * torch::tensor({1.0f, 2.0f, 3.0f, 4.0f}).unsqueeze_(0)).exp().mean();
  }));
}

TEST_F(Capture, GatherScatterSortScan) {
  expect_trains_the_same(on_matrix([](const Tensor& h, const Batch&) {
    const Tensor index = torch::arange(5).unsqueeze(1).remainder(4);
    const auto [sorted, order] = h.sort(1);
    const auto [top, where] = h.topk(2, 1);
    Tensor y = torch::zeros({5, 4}).scatter_add(1, order, h.sin());
    y = y.index_add(0, torch::tensor({0, 0, 1}), h.slice(0, 0, 3));
    const auto [largest, at_index] = h.max(1);
    return y.cumsum(0).pow(2).mean() + h.gather(1, index).sum() + sorted.cumsum(1).sin().sum() +
           top.sum() + largest.exp().sum() + h.gather(1, at_index.unsqueeze(1)).sum() +
           torch::where(h > 0, h, h * 0.1).sum() + h.clamp(-1, 1).norm() + h.logsumexp(1).sum();
  }));
}

TEST_F(Capture, BroadcastAndExpand) {
  expect_trains_the_same(on_matrix([](const Tensor& h, const Batch&) {
    const Tensor wide = h.unsqueeze(1).expand({5, 3, 4});
    return (wide * torch::ones({3, 1})).sin().mean() + h.sum(0, true).expand({5, 4}).mul(h).sum() +
           torch::einsum("ij,kj->ik", {h, h}).sum() + h.repeat({2, 1}).exp().mean();
  }));
}

TEST_F(Capture, LazyConjugationAndNegation) {
  expect_trains_the_same(on_matrix([](const Tensor& h, const Batch&) {
    const Tensor conjugated = torch::complex(h, h * 0.5).conj();
    return torch::view_as_real(conjugated.clone()).sum() + at::imag(conjugated).square().mean();
  }));
}

TEST_F(Capture, DropoutsOfEveryKind) {
  expect_trains_the_same(on_matrix([](const Tensor& h, const Batch&) {
    Tensor y = at::dropout(h, 0.3, true) + at::alpha_dropout(h, 0.2, true);
    y = y + at::feature_dropout(h.view({1, 5, 4}), 0.5, true).view({5, 4});
    y = y + std::get<0>(at::native_dropout(y, 0.4, true));
    Tensor z = y.clone();
    at::dropout_(z, 0.5, true);
    return (z * y).tanh().sum() + at::rrelu(h, 0.1, 0.3, true).sum() +
           (h * torch::bernoulli(torch::full({5, 4}, 0.5))).exp().mean();
  }));
}

TEST_F(Capture, GeneratorOfItsOwn) {
  at::Generator mine = at::detail::createCPUGenerator(17);
  const Tensor w = parameter({4, 6});
  const Problem problem{.parameters = {w},
                        .loss =
                            [w, mine](const Batch& batch) {
                              const Tensor h = torch::matmul(batch[0], w.t());
                              return (h * torch::rand({5, 4}, mine, at::kFloat)).exp().mean() +
                                     h.mul(torch::empty({5, 4}).bernoulli_(0.5, mine)).sum();
                            },
                        .batches = batches({5, 6})};
  const Tensor start = mine.get_state();
  const auto plain = testing::train(problem, testing::plain_step(problem));
  const Tensor end = mine.get_state();
  mine.set_state(start);
  const Recording recording = capture(problem.loss, problem.batches[0], {w});
  EXPECT_TRUE(testing::same_bits(mine.get_state(), start));
  for (const char* strategy : {"keep_all", "recompute_all"}) {
    mine.set_state(start);
    testing::PlannedStep step(recording, plan(recording.graph, {.strategy = strategy}));
    EXPECT_TRUE(testing::same_bits(testing::train(problem, std::ref(step)), plain));
    EXPECT_TRUE(testing::same_bits(mine.get_state(), end));
  }
}

TEST_F(Capture, ConvolutionsPoolingAndBatchNorm) {
  torch::nn::Conv2d conv(torch::nn::Conv2dOptions(3, 6, 3).padding(1));
  torch::nn::BatchNorm2d shared(6);
  torch::nn::BatchNorm2d frozen(6);
  frozen->eval();
  torch::nn::InstanceNorm2d instance(
      torch::nn::InstanceNorm2dOptions(6).affine(true).track_running_stats(true));
  torch::nn::Sequential all(conv, shared, frozen, instance);
  for (const auto format : {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast}) {
    SCOPED_TRACE(format);
    std::vector<Batch> images;
    for (int i = 0; i < 3; ++i) {
      images.push_back({torch::randn({2, 3, 8, 8}).contiguous(format)});
    }
    expect_trains_the_same(module_problem(
        *all,
        [=](const Batch& batch) mutable {
          Tensor h = shared->forward(conv->forward(batch[0])).relu_();
          h = shared->forward(h);  // a second time: its statistics move twice in a step
          h = frozen->forward(h) + instance->forward(h);
          const auto [pooled, where] = at::max_pool2d_with_indices(h, 2);
          h = at::max_unpool2d(pooled, where, {8, 8}) + at::avg_pool2d(h, 3, 1, 1);
          return at::upsample_bilinear2d(h, {5, 5}, false).pow(2).mean() +
                 at::adaptive_avg_pool2d(h, {1, 1}).sum();
        },
        images));
  }
}

TEST_F(Capture, BatchNormOnStatisticsOfTheStep) {
  expect_trains_the_same(on_matrix([](const Tensor& h, const Batch&) {
    Tensor mean = torch::zeros({4});
    Tensor variance = torch::ones({4});
    const Tensor y = at::batch_norm(h, {}, {}, mean, variance, true, 0.1, 1e-5, false);
    return (y.tanh() * variance + mean).sum();
  }));
}

TEST_F(Capture, RecurrentLayers) {
  torch::nn::LSTM lstm(torch::nn::LSTMOptions(6, 5).num_layers(2).dropout(0.3).bidirectional(true));
  expect_trains_the_same(module_problem(
      *lstm,
      [lstm](const Batch& batch) mutable {
        return std::get<0>(lstm->forward(batch[0])).pow(2).mean();
      },
      batches({7, 3, 6})));
  torch::nn::GRU gru(6, 5);
  expect_trains_the_same(module_problem(
      *gru,
      [gru](const Batch& batch) mutable {
        return std::get<0>(gru->forward(batch[0])).pow(2).mean();
      },
      batches({7, 3, 6})));
}

TEST_F(Capture, AttentionFusedAndSpelledOut) {
  torch::nn::Linear qkv(8, 24);
  const Problem problem = module_problem(
      *qkv,
      [qkv](const Batch& batch) mutable {
        const std::vector<Tensor> heads =
            qkv->forward(batch[0]).view({2, 6, 3, 2, 4}).permute({2, 0, 3, 1, 4}).unbind(0);
        const Tensor fused = at::scaled_dot_product_attention(heads[0], heads[1], heads[2], {}, 0.0,
                                                              /*is_causal=*/true);
        const Tensor dropped =
            at::scaled_dot_product_attention(heads[0], heads[1], heads[2], {}, 0.5, true);
        return fused.pow(2).sum() + dropped.tanh().sum();
      },
      batches({2, 6, 8}));
  expect_trains_the_same(problem);
}

TEST_F(Capture, TiedAndFrozenAndUnusedParameters) {
  const Tensor tied = parameter({7, 6});
  const Tensor frozen = torch::randn({6});
  const Tensor unused = parameter({3});
  const Tensor whole = torch::randn({2, 6});
  Tensor part = whole[1].requires_grad_();
  const Problem problem{
      .parameters = {tied, frozen, unused, tied, part},
      .loss =
          [=](const Batch& batch) {
            const Tensor h = at::embedding(tied, batch[0]) * frozen + part;
            return F::cross_entropy(torch::matmul(h, tied.t()).flatten(0, 1), batch[0].flatten());
          },
      .batches = {{torch::randint(7, {2, 3}, at::kLong)}, {torch::randint(7, {2, 3}, at::kLong)}}};
  expect_trains_the_same(problem);
}

// Gradients of parts of one tensor share a storage, as backward leaves them.
TEST_F(Capture, GradientsThatShareAStorage) {
  const Tensor a = parameter({2, 3}), b = parameter({4, 3});
  expect_trains_the_same({.parameters = {a, b},
                          .loss =
                              [a, b](const Batch& batch) {
                                return (torch::cat({a, b}) * batch[0]).exp().sum();
                              },
                          .batches = batches({6, 3})});
}

TEST_F(Capture, AutocastInsideAndAround) {
  torch::nn::Sequential net(torch::nn::Linear(6, 8), torch::nn::ReLU(), torch::nn::Linear(8, 4));
  const auto loss = [net](const Batch& batch) mutable {
    return net->forward(batch[0]).to(at::kFloat).pow(2).mean() +
           net->forward(batch[0] * 2).to(at::kFloat).mean();
  };
  const auto with_autocast = [](const LossFunction& function) {
    return [function](const Batch& batch) {
      at::autocast::set_autocast_enabled(at::kCPU, true);
      at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
      at::autocast::increment_nesting();
      Tensor result = function(batch);
      if (at::autocast::decrement_nesting() == 0) {
        at::autocast::clear_cache();
      }
      at::autocast::set_autocast_enabled(at::kCPU, false);
      return result;
    };
  };
  const Problem problem = module_problem(*net, with_autocast(loss), batches({5, 6}));
  expect_trains_the_same(problem);
  const Recording recording = capture(problem.loss, problem.batches[0], problem.parameters);
  EXPECT_TRUE(std::ranges::any_of(recording.graph.ops,
                                  [](const Op& op) { return op.kind == "aten::_to_copy"; }));
}

TEST_F(Capture, DetachedPartsAndNoGrad) {
  expect_trains_the_same(on_matrix([](const Tensor& h, const Batch&) {
    Tensor target;
    {
      const at::NoGradGuard no_gradients;
      target = h.softmax(1);
    }
    return (h.log_softmax(1) * target).sum() + (h - h.detach().mean()).pow(2).sum();
  }));
}

TEST_F(Capture, GradientPenalty) {
  const Tensor w = parameter({4, 6});
  expect_trains_the_same(
      {.parameters = {w},
       .loss =
           [w](const Batch& batch) {
             const Tensor x = batch[0].detach().clone().requires_grad_();
             const Tensor y = torch::matmul(x, w.t()).tanh().sum();
             const Tensor gradient = torch::autograd::grad({y}, {x}, {}, /*retain_graph=*/true,
                                                           /*create_graph=*/true)[0];
             return y + (gradient.norm(2, 1) - 1).pow(2).mean();
           },
       .batches = batches({5, 6})});
}

struct Cube : torch::autograd::Function<Cube> {
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& x) {
    context->save_for_backward({x});
    return x * x * x;
  }
  static torch::autograd::tensor_list backward(torch::autograd::AutogradContext* context,
                                               torch::autograd::tensor_list gradients) {
    const Tensor x = context->get_saved_variables()[0];
    return {gradients[0] * 3.0 * x * x};
  }
};

TEST_F(Capture, CustomFunctions) {
  expect_trains_the_same(
      on_matrix([](const Tensor& h, const Batch&) { return Cube::apply(h).sum(); }));
}

TEST_F(Capture, CheckpointedBlocksRunPlainly) {
  int runs = 0;
  const Problem problem = on_matrix([&runs](const Tensor& h, const Batch&) {
    return checkpoint(
               [&runs](const Tensor& x) {
                 ++runs;
                 return at::dropout(x.tanh(), 0.5, true).exp();
               },
               h)
        .sum();
  });
  const Recording recording = capture(problem.loss, problem.batches[0], problem.parameters);
  EXPECT_EQ(runs, 2);  // once for each of the two captured runs
  EXPECT_EQ(std::ranges::count(recording.graph.ops, "aten::tanh", &Op::kind), 1);
  expect_trains_the_same(problem);
}

TEST_F(Capture, TableMadeInTheFirstCall) {
  auto table = std::make_shared<Tensor>();
  expect_trains_the_same(on_matrix([table](const Tensor& h, const Batch&) {
    if (!table->defined()) {
      *table = torch::linspace(0, 1, 4).exp();
    }
    return (h * *table).sum();
  }));
  table->reset();
  const Problem fresh = on_matrix([table](const Tensor& h, const Batch&) {
    if (!table->defined()) {
      *table = torch::linspace(0, 1, 4).exp();
    }
    return (h * *table).sum();
  });
  const Recording recording = capture(fresh.loss, fresh.batches[0], fresh.parameters);
  EXPECT_EQ(std::ranges::count(recording.graph.ops, "aten::linspace", &Op::kind), 0);
}

TEST_F(Capture, StateInBuffersMoves) {
  const Tensor average = torch::zeros({4});
  Problem problem = on_matrix([average](const Tensor& h, const Batch&) {
    Tensor(average).mul_(0.9).add_(h.detach().mean(0), 0.1);
    return (h - average).pow(2).sum();
  });
  problem.buffers = {average};
  expect_trains_the_same(problem);
}

TEST_F(Capture, CallerWithoutGradModeIsNoMatter) {
  const Problem problem = on_matrix([](const Tensor& h, const Batch&) { return h.sum(); });
  const at::NoGradGuard no_gradients;
  EXPECT_FALSE(capture(problem.loss, problem.batches[0], problem.parameters).graph.ops.empty());
}

TEST_F(Capture, NamesLayersInBothPhases) {
  const Tensor w = parameter({4, 6});
  const Recording recording = capture(
      [w](const Batch& batch) {
        Tensor h;
        {
          const Scope scope("first");
          h = torch::matmul(batch[0], w.t());
        }
        const Scope scope("second");
        return h.tanh().sum();
      },
      {torch::randn({5, 6})}, {w});
  const auto scope_of = [&](const char* kind, Phase phase) -> std::string {
    for (const Op& op : recording.graph.ops) {
      if (op.kind == kind && op.phase == phase) {
        return op.scope;
      }
    }
    return "no such op";
  };
  EXPECT_EQ(scope_of("aten::mm", Phase::forward), "first");
  EXPECT_EQ(scope_of("aten::tanh", Phase::forward), "second");
  EXPECT_EQ(scope_of("aten::tanh_backward", Phase::backward), "second");
  EXPECT_EQ(scope_of("aten::mm", Phase::backward), "first");
}

class CaptureZoo : public ::testing::TestWithParam<std::string> {};

TEST_P(CaptureZoo, NoOpLiesAboutWhatItWritesNorAboutReuse) {
  const Problem problem = testing::zoo_problem(GetParam(), 1);
  const Recording recording =
      capture(problem.loss, problem.batches[0], problem.parameters,
              {.buffers = problem.buffers, .check_mutation = true, .check_reuse = true});
  EXPECT_TRUE(std::ranges::any_of(recording.graph.ops, [](const Op& op) { return !op.reuse.empty(); }));
}

INSTANTIATE_TEST_SUITE_P(Zoo, CaptureZoo, ::testing::ValuesIn(testing::zoo_names()),
                         [](const auto& instance) { return instance.param; });

}  // namespace
}  // namespace remat
