// SPDX-License-Identifier: Apache-2.0
#include "remat/libtorch/checkpoint.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <memory>
#include <string>

#include "remat/core/error.h"
#include "tests/libtorch/testing.h"
#include "tests/testing/counting_allocator.h"

// The semantics of checkpoint(): the same cases that PyTorch tests for its Python version.

namespace remat {
namespace {

using at::Tensor;
using testing::leaf;
using testing::same_bits;
using torch::autograd::grad;

// Counts how often code is reached.
struct Counter {
  std::shared_ptr<int> calls = std::make_shared<int>(0);
  void operator()() const { ++*calls; }
  int operator*() const { return *calls; }
};

TEST(Checkpoint, RunsOnceInForwardAndOnceInBackward) {
  const Counter calls;
  Tensor x = leaf({4});
  const Tensor y = checkpoint(
      [calls](const Tensor& a) {
        calls();
        return a.sin().exp();
      },
      x);
  EXPECT_EQ(*calls, 1);
  y.sum().backward();
  EXPECT_EQ(*calls, 2);
  EXPECT_TRUE(same_bits(x.grad(), grad({x.sin().exp().sum()}, {x})[0]));
}

TEST(Checkpoint, DoesNotRunAgainWithoutBackwardOrWhereNothingIsSaved) {
  const Counter calls;
  Tensor x = leaf({4});
  checkpoint(
      [calls](const Tensor& a) {
        calls();
        return a.sin();
      },
      x);
  checkpoint(
      [calls](const Tensor& a) {
        calls();
        return a + a;
      },
      x)
      .sum()
      .backward();
  EXPECT_EQ(*calls, 2);
}

TEST(Checkpoint, StopsTheRerunAtTheLastNeededTensor) {
  const Counter start, middle, end;
  const auto fn = [start, middle, end](const Tensor& a) {
    start();
    Tensor b = a.exp();  // saves its result
    middle();
    b = b + 1;
    end();
    return b;
  };
  Tensor x = leaf({4});
  checkpoint(fn, x).sum().backward();
  EXPECT_EQ(*start, 2);
  EXPECT_EQ(*middle, 1);  // left inside exp
  checkpoint(fn, x, {.early_stop = false}).sum().backward();
  EXPECT_EQ(*start, 4);
  EXPECT_EQ(*end, 3);
}

// The product saves its arguments before it computes anything, and nothing after them is needed.
TEST(Checkpoint, TheOpThatSavesLastIsNotComputedAgain) {
  constexpr int64_t kRows = 64, kColumns = 1 << 14, kResultBytes = 4 * kRows * kColumns;
  testing::live_bytes();
  Tensor x = leaf({kRows, 1});
  const Tensor w = torch::randn({1, kColumns});
  const auto fn = [w](const Tensor& a) { return a.exp().mm(w); };
  const Tensor gradient = torch::ones({kRows, kColumns});
  const auto backward_peak = [&](bool early_stop) {
    const Tensor y = checkpoint(fn, x, {.early_stop = early_stop});
    const int64_t before = testing::live_bytes();
    testing::reset_peak();
    y.backward(gradient);
    return testing::peak_bytes() - before;
  };
  EXPECT_LT(backward_peak(true), kResultBytes);
  EXPECT_GE(backward_peak(false), kResultBytes);
}

// Each kind of op as the one in which the re-run ends: saving an argument, the result, a second
// result; with one result or several; in place; views; composite ops; without any op.
TEST(Checkpoint, StopsInAnyOp) {
  using Function = std::function<Tensor(const Tensor&)>;
  struct Cube : torch::autograd::Function<Cube> {
    static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& a) {
      context->save_for_backward({a});
      return a * a * a;
    }
    static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                   torch::autograd::variable_list g) {
      return {3 * context->get_saved_variables()[0].square() * g[0]};
    }
  };
  torch::manual_seed(1);
  const Tensor w = torch::randn({6, 6});
  const Tensor kernel = torch::randn({2, 1, 3, 3});
  const Tensor rows = torch::tensor({0, 2, 2});
  torch::nn::LSTM lstm(torch::nn::LSTMOptions(6, 3));
  const std::vector<std::pair<const char*, Function>> lasts = {
      {"sin", [](const Tensor& a) { return a.sin(); }},
      {"exp", [](const Tensor& a) { return a.exp(); }},
      {"mm", [w](const Tensor& a) { return a.mm(w); }},
      {"linear", [w](const Tensor& a) { return at::linear(a, w); }},
      {"conv2d",
       [=](const Tensor& a) {
         return at::conv2d(a.view({1, 1, 4, 6}), kernel);
       }},
      {"batch_norm",
       [](const Tensor& a) { return at::batch_norm(a, {}, {}, {}, {}, true, 0, 1e-5, false); }},
      {"layer_norm", [](const Tensor& a) { return at::layer_norm(a, {6}); }},
      {"max_pool",
       [](const Tensor& a) {
         return at::max_pool2d(a.view({1, 1, 4, 6}), 2);
       }},
      {"softmax", [](const Tensor& a) { return a.softmax(1); }},
      {"topk", [](const Tensor& a) { return std::get<0>(a.topk(2)); }},
      {"max", [](const Tensor& a) { return std::get<0>(a.max(1)); }},
      {"index", [rows](const Tensor& a) { return a.index({rows}) * a.index_select(0, rows); }},
      {"cat",
       [](const Tensor& a) {
         return at::cat({a.sin(), a.cos()});
       }},
      {"unbind", [](const Tensor& a) { return a.exp().unbind(1)[2]; }},
      {"split", [](const Tensor& a) { return a.square().split(2)[1]; }},
      {"relu_", [](const Tensor& a) { return a.clone().relu_(); }},
      {"mul_", [w](const Tensor& a) { return a.clone().mul_(w[0]); }},
      {"addcmul", [](const Tensor& a) { return at::addcmul(a, a, a.sin()); }},
      {"where", [](const Tensor& a) { return at::where(a > 0, a, a.exp()); }},
      {"cumprod", [](const Tensor& a) { return a.cumprod(1); }},
      {"qr", [](const Tensor& a) { return std::get<1>(at::linalg_qr(a.mm(a.t()))); }},
      {"inverse", [](const Tensor& a) { return (a.t().mm(a) + at::eye(6)).inverse(); }},
      {"dropout", [](const Tensor& a) { return at::dropout(a, 0.5, true); }},
      {"attention",
       [](const Tensor& a) {
         const Tensor q = a.view({1, 1, 4, 6});
         return at::scaled_dot_product_attention(q, q, q);
       }},
      {"lstm", [lstm](const Tensor& a) mutable { return std::get<0>(lstm(a.unsqueeze(0))); }},
      {"loss", [rows](const Tensor& a) { return at::cross_entropy_loss(a.slice(0, 0, 3), rows); }},
      {"to", [](const Tensor& a) { return a.to(at::kDouble).log_softmax(0); }},
      {"norm", [](const Tensor& a) { return a.norm(); }},
      {"custom function", [](const Tensor& a) { return Cube::apply(a); }},
      {"nested",
       [](const Tensor& a) { return checkpoint([](const Tensor& b) { return b.sin(); }, a); }},
  };
  const Tensor x = leaf({4, 6});
  for (const auto& [name, last] : lasts) {
    const Function fn = [last = last](const Tensor& a) { return last(a.tanh() + a.sigmoid()); };
    const auto gradient = [&x](const Function& forward) {
      torch::manual_seed(2);
      return grad({forward(x).square().sum()}, {x})[0];
    };
    const Tensor plain = gradient(fn);
    for (const bool early_stop : {true, false}) {
      EXPECT_TRUE(same_bits(plain, gradient([&](const Tensor& a) {
                              return checkpoint(fn, a, {.early_stop = early_stop});
                            })))
          << name << ", early_stop " << early_stop;
    }
  }
}

TEST(Checkpoint, StopsEarlierWhenPartOfTheGraphIsGone) {
  const Counter second;
  Tensor x = leaf({4});
  Tensor kept;
  {
    auto [a, b] = checkpoint(
        [second](const Tensor& in) {
          Tensor first = in.exp();
          second();
          return std::make_tuple(first, in.sin().exp());
        },
        x);
    kept = a;  // b and the nodes behind it are dropped
  }
  EXPECT_EQ(*second, 1);
  kept.sum().backward();
  EXPECT_EQ(*second, 1);
}

TEST(Checkpoint, ParametersAreNotRecomputed) {
  const Counter calls;
  const Tensor w = leaf({4});
  const Tensor x = torch::ones({4});
  // The product saves w for x, which needs no gradient, and x for w, which is the region's input.
  const Tensor y = checkpoint(
      [calls, w](const Tensor& a) {
        calls();
        return (a + 1).detach() + w * 2;
      },
      x);
  y.sum().backward();
  EXPECT_EQ(*calls, 1);
}

TEST(Checkpoint, ResultTypeIsThatOfTheFunction) {
  Tensor x = leaf({3});
  Tensor z = leaf({3}, 2);
  const std::vector<Tensor> list = checkpoint(
      [](const std::vector<Tensor>& in) {
        return std::vector<Tensor>{in[0] * in[1], in[1].exp()};
      },
      {x, z});
  ASSERT_EQ(list.size(), 2u);
  const auto [first, name] =
      checkpoint([](const Tensor& a) { return std::make_pair(a.sin(), std::string("sin")); }, x);
  EXPECT_EQ(name, "sin");
  (list[0] + list[1] + first).sum().backward();
  EXPECT_TRUE(same_bits(x.grad(), grad({(x * z).sum() + x.sin().sum()}, {x})[0]));
  Tensor seen;
  checkpoint([&seen](const Tensor& a) { seen = a; }, x);
  EXPECT_TRUE(seen.is_same(x));
}

TEST(Checkpoint, TakesNonTensorArguments) {
  Tensor x = leaf({3});
  const auto scale = [](const Tensor& a, double factor, const std::string& op, const Tensor& b) {
    return op == "mul" ? a.exp() * factor * b : a;
  };
  const Tensor z = torch::full({3}, 2.0);
  const Tensor y = checkpoint(scale, std::make_tuple(x, 3.0, std::string("mul"), z));
  y.sum().backward();
  EXPECT_TRUE(same_bits(x.grad(), grad({scale(x, 3.0, "mul", z).sum()}, {x})[0]));
}

TEST(Checkpoint, UndefinedAndIntegerInputsArePassedOn) {
  Tensor table = leaf({5, 2});
  const Tensor y = checkpoint(
      [table](const std::vector<Tensor>& in) {
        EXPECT_FALSE(in[1].defined());
        return table.exp().index_select(0, in[0]);
      },
      {torch::tensor({1, 1, 4}), Tensor()});
  y.sum().backward();
  EXPECT_TRUE(same_bits(table.grad()[1], 2 * table.exp()[1].detach()));
}

TEST(Checkpoint, ModulesAndHolders) {
  torch::manual_seed(1);
  torch::nn::Linear linear(4, 4);
  torch::nn::Sequential sequential(linear, torch::nn::ReLU(), torch::nn::Linear(4, 2));
  torch::nn::LSTM lstm(torch::nn::LSTMOptions(4, 3));
  Tensor x = leaf({2, 5, 4});
  Tensor loss = checkpoint(linear, x).sum() + checkpoint(sequential, x).sum() +
                std::get<0>(checkpoint(lstm, x)).sum();
  Tensor plain = linear(x).sum() + sequential->forward(x).sum() + std::get<0>(lstm(x)).sum();
  EXPECT_TRUE(same_bits(grad({loss}, {x})[0], grad({plain}, {x})[0]));
}

// Overload resolution must not ask a holder whether it takes one tensor: that does not compile.
TEST(Checkpoint, ModulesOfSeveralArguments) {
  torch::manual_seed(1);
  torch::nn::Bilinear bilinear(4, 4, 2);
  auto shared = std::make_shared<torch::nn::LinearImpl>(4, 3);
  Tensor x = leaf({5, 4});
  const Tensor ours =
      checkpoint(bilinear, std::make_tuple(x, x.exp())).sum() + checkpoint(shared, x).exp().sum();
  const Tensor plain = bilinear(x, x.exp()).sum() + shared->forward(x).exp().sum();
  EXPECT_TRUE(same_bits(grad({ours}, {x})[0], grad({plain}, {x})[0]));
}

TEST(Checkpoint, PartOfTheOutputsUnused) {
  Tensor x = leaf({4});
  const auto fn = [](const std::vector<Tensor>& in) {
    return std::vector<Tensor>{in[0].sin(), in[0].exp(), in[0].cos()};
  };
  const std::vector<Tensor> y = checkpoint(fn, {x});
  y[1].sum().backward();
  EXPECT_TRUE(same_bits(x.grad(), x.exp().detach()));
}

TEST(Checkpoint, PartOfTheGradientsWanted) {
  Tensor x = leaf({4});
  Tensor z = leaf({4}, 2);
  const auto fn = [](const std::vector<Tensor>& in) { return (in[0] * in[1]).exp() * in[1]; };
  const Tensor ours = checkpoint(fn, {x, z}).sum();
  const Tensor plain = fn({x, z}).sum();
  EXPECT_TRUE(same_bits(grad({ours}, {z})[0], grad({plain}, {z})[0]));
  const Tensor frozen = torch::ones({4});
  checkpoint(fn, {frozen, z}).sum().backward();
  EXPECT_FALSE(x.grad().defined());
  EXPECT_TRUE(z.grad().defined());
}

TEST(Checkpoint, RetainGraphAndSeveralBackwardPasses) {
  const Counter calls;
  Tensor x = leaf({4});
  const Tensor y = checkpoint(
                       [calls](const Tensor& a) {
                         calls();
                         return a.sin().exp();
                       },
                       x)
                       .sum();
  y.backward({}, /*retain_graph=*/true);
  const Tensor once = x.grad().clone();
  y.backward({}, /*retain_graph=*/true);
  y.backward();
  EXPECT_EQ(*calls, 4);
  EXPECT_TRUE(same_bits(x.grad(), once + once + once));
  EXPECT_THROW(y.backward(), c10::Error);
}

TEST(Checkpoint, DetachedPartsInside) {
  Tensor x = leaf({4});
  const auto fn = [](const Tensor& a) {
    Tensor b;
    {
      torch::NoGradGuard no_grad;
      b = a.exp().tanh();
    }
    return a.sin() * b + a.cos().detach() * a.square();
  };
  EXPECT_TRUE(same_bits(grad({checkpoint(fn, x).sum()}, {x})[0], grad({fn(x).sum()}, {x})[0]));
}

TEST(Checkpoint, ThirdOrderGradientsThroughNestedRegions) {
  const auto f = [](const Tensor& x) { return (x.sin() * x.exp()).tanh(); };
  const auto nested = [f](const Tensor& x) {
    return checkpoint([f](const Tensor& a) { return checkpoint(f, checkpoint(f, a)); }, x);
  };
  const auto third = [](auto g, const Tensor& x) {
    std::vector<Tensor> orders = {g(x).sum()};
    for (int i = 0; i < 3; ++i) {
      orders.push_back(grad({orders.back()}, {x}, {}, true, true)[0].sum());
    }
    return orders;
  };
  const Tensor x = leaf({5});
  EXPECT_TRUE(same_bits(third([f](const Tensor& a) { return f(f(a)); }, x), third(nested, x)));
}

TEST(Checkpoint, NestedRegionsRerunFromTheOutsideIn) {
  const Counter outer, inner;
  Tensor x = leaf({4});
  const auto fn = [outer, inner](const Tensor& a) {
    outer();
    const Tensor b = checkpoint(
        [inner](const Tensor& c) {
          inner();
          return c.sin().exp();
        },
        a.exp());
    return b.tanh();
  };
  checkpoint(fn, x).sum().backward();
  // tanh asks for its result: outer runs to its end with inner in it; then inner runs for itself.
  EXPECT_EQ(*outer, 2);
  EXPECT_EQ(*inner, 3);
}

TEST(Checkpoint, NestedToDepthForty) {
  std::function<Tensor(const Tensor&, int)> deep = [&deep](const Tensor& a, int depth) {
    const Tensor b = (a.sin() + a).tanh();
    return depth == 0 ? b : checkpoint(deep, std::make_tuple(b, depth - 1)).cos();
  };
  std::function<Tensor(const Tensor&, int)> plain = [&plain](const Tensor& a, int depth) {
    const Tensor b = (a.sin() + a).tanh();
    return depth == 0 ? b : plain(b, depth - 1).cos();
  };
  const Tensor x = leaf({3});
  EXPECT_TRUE(same_bits(grad({deep(x, 40).sum()}, {x})[0], grad({plain(x, 40).sum()}, {x})[0]));
}

TEST(Checkpoint, HooksFireOnce) {
  const Counter on_inner, on_output;
  Tensor x = leaf({4});
  Tensor y = checkpoint(
      [on_inner](const Tensor& a) {
        Tensor b = a.exp();
        b.register_hook([on_inner](Tensor g) {
          on_inner();
          return g * 2;
        });
        return b.sin();
      },
      x);
  y.register_hook([on_output](Tensor) { on_output(); });
  y.sum().backward();
  EXPECT_EQ(*on_inner, 1);
  EXPECT_EQ(*on_output, 1);
  EXPECT_TRUE(same_bits(x.grad(), 2 * (x.exp().cos() * x.exp()).detach()));
}

TEST(Checkpoint, ActivationsAreNotKept) {
  constexpr int64_t kBytes = 4 << 16;
  testing::live_bytes();
  Tensor x = leaf({1 << 16});
  const auto fn = [](const Tensor& a) { return a.sin().exp().tanh().sin().exp(); };
  int64_t before = testing::live_bytes();
  Tensor plain = fn(x);
  EXPECT_GE(testing::live_bytes() - before, 3 * kBytes);
  before = testing::live_bytes();
  Tensor ours = checkpoint(fn, x);
  EXPECT_LT(testing::live_bytes() - before, 2 * kBytes);
}

// Each recomputed tensor is freed by the node that used it: when the first node of the region runs,
// the results of the others are gone.
TEST(Checkpoint, RecomputedTensorsAreFreedAsTheyAreUsed) {
  constexpr int64_t kBytes = 4 << 16;
  testing::live_bytes();
  Tensor x = leaf({1 << 16});
  auto live = std::make_shared<std::vector<int64_t>>();
  const auto fn = [live](const Tensor& a) {
    Tensor b = a;
    for (int i = 0; i < 6; ++i) {
      b = b.exp();
      b.register_hook([live](Tensor) { live->push_back(testing::live_bytes()); });
    }
    return b;
  };
  checkpoint(fn, x).sum().backward();
  ASSERT_EQ(live->size(), 6u);
  EXPECT_GE(live->at(1) - live->at(5), 3 * kBytes);
}

TEST(Checkpoint, TensorsAPassDoesNotUseAreFreedAtItsEnd) {
  constexpr int64_t kBytes = 4 << 16;
  testing::live_bytes();
  Tensor x = leaf({1 << 16});
  Tensor z = leaf({1 << 16}, 2);
  const std::vector<Tensor> y = checkpoint(
      [](const std::vector<Tensor>& in) {
        return std::vector<Tensor>{in[0].sin().exp(), in[1].sin().exp().tanh()};
      },
      {x, z});
  const int64_t before = testing::live_bytes();
  grad({y[0].sum()}, {x}, {}, /*retain_graph=*/true);
  EXPECT_LT(testing::live_bytes() - before, kBytes);
}

TEST(Checkpoint, WithoutGradModeItIsAPlainCall) {
  const Counter calls;
  const auto fn = [calls](const Tensor& a) {
    calls();
    return a.exp();
  };
  Tensor x = leaf({4});
  {
    torch::NoGradGuard no_grad;
    EXPECT_FALSE(checkpoint(fn, x).requires_grad());
  }
  {
    c10::InferenceMode inference;
    EXPECT_TRUE(checkpoint(fn, x).is_inference());
  }
  EXPECT_EQ(*calls, 2);
}

TEST(Checkpoint, InferenceTensorAsInput) {
  Tensor constant;
  {
    c10::InferenceMode inference;
    constant = torch::ones({4});
  }
  Tensor x = leaf({4});
  checkpoint([](const std::vector<Tensor>& in) { return (in[0] + in[1].clone()).exp(); },
             {x, constant})
      .sum()
      .backward();
  EXPECT_TRUE(same_bits(x.grad(), (x + 1).exp().detach()));
}

TEST(Checkpoint, BackwardInsideTheFunction) {
  Tensor x = leaf({4});
  const auto fn = [](const Tensor& a) {
    const Tensor b = a.sin().exp();
    const Tensor slope = torch::autograd::grad({b.sum()}, {a}, {}, true, true)[0];
    return b + slope.square();
  };
  EXPECT_TRUE(same_bits(grad({checkpoint(fn, x).sum()}, {x})[0], grad({fn(x).sum()}, {x})[0]));
}

TEST(Checkpoint, CustomFunctionThatUnpacksTwice) {
  struct Square : torch::autograd::Function<Square> {
    static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& a) {
      context->save_for_backward({a});
      return a * a;
    }
    static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                   torch::autograd::variable_list g) {
      return {context->get_saved_variables()[0] * g[0] + context->get_saved_variables()[0] * g[0]};
    }
  };
  Tensor x = leaf({4});
  checkpoint([](const Tensor& a) { return Square::apply(a.exp()); }, x).sum().backward();
  EXPECT_TRUE(same_bits(x.grad(), (2 * x.exp() * x.exp()).detach()));
}

TEST(Checkpoint, ViewsAndInPlaceOpsInside) {
  Tensor x = leaf({4, 6});
  const auto fn = [](const Tensor& a) {
    Tensor b = a.sin();
    b.slice(1, 0, 3).mul_(2);
    b.relu_();
    return b.t().reshape({3, 8}).chunk(2, 1)[1] * b.sum();
  };
  EXPECT_TRUE(same_bits(grad({checkpoint(fn, x).sum()}, {x})[0], grad({fn(x).sum()}, {x})[0]));
}

TEST(Checkpoint, InPlaceOpOnTheOutput) {
  Tensor x = leaf({4});
  const auto fn = [](const Tensor& a) { return a.sin() * 3; };
  Tensor y = checkpoint(fn, x);
  y.mul_(2).relu_();
  EXPECT_TRUE(same_bits(grad({y.sum()}, {x})[0], grad({(fn(x) * 2).relu().sum()}, {x})[0]));
}

// A graph of many regions that is dropped without backward must not be torn down recursively.
TEST(Checkpoint, LongChainIsDroppedWithoutBackward) {
  Tensor y = leaf({1});
  for (int i = 0; i < 20000; ++i) {
    y = checkpoint([](const Tensor& a) { return a.sin(); }, y);
  }
  EXPECT_TRUE(y.requires_grad());
}

}  // namespace
}  // namespace remat
