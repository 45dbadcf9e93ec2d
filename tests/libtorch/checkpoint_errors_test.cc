// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <memory>
#include <stdexcept>
#include <string>

#include "remat/core/error.h"
#include "remat/libtorch/checkpoint.h"
#include "tests/libtorch/testing.h"
#include "tests/testing/counting_allocator.h"

// What happens when something goes wrong: the error arrives, says what to do, and leaves nothing.

namespace remat {
namespace {

using at::Tensor;
using testing::leaf;
using testing::same_bits;

template <typename Action>
std::string message_of(Action action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "no remat::Error";
}

// A function that does something else the second time.
template <typename First, typename Second>
auto changing(First first, Second second) {
  auto calls = std::make_shared<int>(0);
  return [calls, first, second](const Tensor& x) { return (*calls)++ == 0 ? first(x) : second(x); };
}

void expect_words(const std::string& message, const std::vector<std::string>& words) {
  for (const std::string& word : words) {
    EXPECT_NE(message.find(word), std::string::npos) << word << " is not in: " << message;
  }
}

TEST(Determinism, OtherShapeNamesTheOpAndBothCalls) {
  Tensor x = leaf({4});
  const Tensor y =
      checkpoint(changing([](const Tensor& a) { return a.sin().exp(); },
                          [](const Tensor& a) { return a.slice(0, 0, 2).sin().exp(); }),
                 x);
  expect_words(message_of([&] { y.sum().backward(); }),
               {"[checkpoint] saved tensor 0", "another shape", "[2]", "aten::sin (call 1)", "[4]",
                "aten::sin (call 0)", "fn must do the same"});
}

TEST(Determinism, OtherType) {
  Tensor x = leaf({4});
  const Tensor y = checkpoint(changing([](const Tensor& a) { return a.exp(); },
                                       [](const Tensor& a) { return a.to(at::kDouble).exp(); }),
                              x);
  expect_words(message_of([&] { y.sum().backward(); }), {"Float[4]", "Double[4]", "aten::exp"});
}

TEST(Determinism, FewerTensors) {
  Tensor x = leaf({4});
  const Tensor y = checkpoint(changing([](const Tensor& a) { return a.sin().exp().tanh(); },
                                       [](const Tensor& a) { return a.sin(); }),
                              x);
  expect_words(message_of([&] { y.sum().backward(); }),
               {"re-run saved 1 tensors and the first run 3", "aten::exp (call 1)"});
}

TEST(Determinism, MoreTensors) {
  Tensor x = leaf({4});
  const Tensor y = checkpoint(changing([](const Tensor& a) { return a.exp(); },
                                       [](const Tensor& a) { return a.exp().exp(); }),
                              x, {.early_stop = false});
  expect_words(message_of([&] { y.sum().backward(); }),
               {"more than the 1 tensors", "aten::exp (call 1)"});
}

TEST(Determinism, OtherBytesAreFoundInBytesMode) {
  const auto make = [] {
    return changing([](const Tensor& a) { return (a * 2).exp(); },
                    [](const Tensor& a) { return (a * 3).exp(); });
  };
  Tensor x = leaf({4});
  EXPECT_NO_THROW(checkpoint(make(), x).sum().backward());
  const Tensor y = checkpoint(make(), x, {.determinism = DeterminismCheck::bytes});
  expect_words(message_of([&] { y.sum().backward(); }), {"other bytes", "aten::exp (call 1)"});
  const auto fine = [](const Tensor& a) { return at::dropout((a.t() * 2).exp(), 0.5, true); };
  EXPECT_NO_THROW(checkpoint(fine, x, {.determinism = DeterminismCheck::bytes}).sum().backward());
}

TEST(Determinism, BytesOfSparseTensors) {
  const Tensor sparse = torch::eye(4).to_sparse();
  const auto product = [sparse](const Tensor& a) { return at::_sparse_mm(sparse, a.exp()).exp(); };
  Tensor x = leaf({4, 4});
  checkpoint(product, x, {.determinism = DeterminismCheck::bytes}).sum().backward();
  EXPECT_TRUE(same_bits(x.grad(), torch::autograd::grad({product(x).sum()}, {x})[0]));
}

TEST(Determinism, CheckCanBeSwitchedOff) {
  Tensor x = leaf({4});
  const Tensor y = checkpoint(changing([](const Tensor& a) { return a.exp().sum(); },
                                       [](const Tensor& a) { return (a + 0).exp().sum(); }),
                              x, {.determinism = DeterminismCheck::none});
  EXPECT_NO_THROW(y.backward());
}

TEST(Determinism, KeptOpAtAnotherPlace) {
  Tensor x = leaf({4, 4});
  const Tensor y =
      checkpoint(changing([](const Tensor& a) { return a.mm(a).exp(); },
                          [](const Tensor& a) { return a.sin().mm(a).exp(); }),
                 x, {.policy = keep_ops({"aten::mm"}), .determinism = DeterminismCheck::none});
  expect_words(message_of([&] { y.sum().backward(); }), {"aten::sin", "kept"});
}

TEST(Errors, InputChangedInPlaceByTheRegion) {
  Tensor x = leaf({4});
  expect_words(message_of([&] {
                 checkpoint(
                     [](const Tensor& a) {
                       Tensor b = a;
                       return b.mul_(2).exp();
                     },
                     x * 1);
               }),
               {"[checkpoint] fn changed its input 0 in place", "clone"});
}

TEST(Errors, InputChangedInPlaceBeforeBackward) {
  Tensor x = leaf({4});
  Tensor in = x * 1;
  const Tensor y = checkpoint([](const Tensor& a) { return a.exp().sin(); }, in);
  in.add_(1);
  expect_words(message_of([&] { y.sum().backward(); }), {"[checkpoint] input 0 cannot be used"});
}

// Plain autograd refuses this; without the check the re-run would hand out the changed tensor.
TEST(Errors, SavedTensorChangedInPlaceInTheRegion) {
  Tensor x = leaf({4});
  const Tensor y = checkpoint([](const Tensor& a) { return a.exp().mul_(2).exp(); }, x);
  expect_words(message_of([&] { y.sum().backward(); }),
               {"Float[4]", "aten::exp (call 0)", "in place"});
}

TEST(Errors, ParameterChangedBeforeBackward) {
  torch::nn::Linear linear(4, 4);
  Tensor x = leaf({2, 4});
  const Tensor y =
      checkpoint([linear](const Tensor& a) mutable { return linear(a.exp()).exp(); }, x);
  {
    torch::NoGradGuard no_grad;
    linear->weight.add_(1);
  }
  expect_words(message_of([&] { y.sum().backward(); }),
               {"[checkpoint] a tensor of shape [4, 4]", "a parameter", "call backward before"});
}

// Autograd does not save a bias, so it would not notice; but the re-run would compute with the new
// one, and give wrong gradients without a word.
TEST(Errors, TensorTheRegionOnlyReadsIsChangedBeforeBackward) {
  Tensor x = leaf({4});
  Tensor bias = leaf({4}), shift = torch::ones({4}), unread = torch::ones({4});
  const auto fn = [=](const Tensor& a) {
    return (a + bias).exp().sin() * shift.detach().sum().item<float>() + unread;
  };
  const auto change_then_backward = [&](Tensor changed) {
    const Tensor y = checkpoint(fn, x).sum();
    torch::NoGradGuard no_grad;
    changed.add_(1);
    y.backward();
  };
  expect_words(message_of([&] { change_then_backward(bias); }),
               {"a tensor of shape [4]", "version 1", "version 0"});
  expect_words(message_of([&] { change_then_backward(shift); }), {"a tensor of shape [4]"});
  EXPECT_NO_THROW(change_then_backward(unread));  // the re-run stops before it
}

// Another alias of a tensor counts its changes for itself.
TEST(Errors, AliasesWithVersionsOfTheirOwnAreNoChange) {
  Tensor x = leaf({4});
  Tensor shift = torch::ones({4}).add_(1);
  const auto fn = [=](const Tensor& a) {
    return ((a + shift).exp() + shift.variable_data()).exp();
  };
  checkpoint(fn, x).sum().backward();
  EXPECT_TRUE(same_bits(x.grad(), torch::autograd::grad({fn(x).sum()}, {x})[0]));
}

struct Refused : std::runtime_error {
  using std::runtime_error::runtime_error;
};

TEST(Errors, ExceptionInTheFirstRun) {
  torch::nn::BatchNorm1d norm(4);
  Tensor x = leaf({2, 4});
  testing::live_bytes();
  for (int i = 0; i < 3; ++i) {
    const int64_t before = testing::live_bytes();
    EXPECT_THROW(checkpoint(
                     [norm](const Tensor& a) mutable -> Tensor {
                       const Tensor b = norm(a.exp());
                       checkpoint([](const Tensor& c) { return c.sin(); }, b);
                       throw Refused("no");
                     },
                     x),
                 Refused);
    EXPECT_EQ(testing::live_bytes(), before);
  }
  checkpoint([](const Tensor& a) { return a.exp(); }, x).sum().backward();
  EXPECT_TRUE(same_bits(x.grad(), x.exp().detach()));
}

TEST(Errors, ExceptionInTheRerun) {
  torch::nn::BatchNorm1d norm(4);
  const auto state = [&norm] { return testing::clones(norm->buffers()); };
  Tensor x = leaf({2, 4});
  auto fail = std::make_shared<bool>(false);
  const auto fn = [norm, fail](const Tensor& a) mutable {
    const Tensor b = at::dropout(norm(a.exp()), 0.5, true);
    if (*fail) {
      throw Refused("not again");
    }
    return b.sin();
  };
  testing::live_bytes();
  const int64_t before_all = testing::live_bytes();
  {
    const Tensor y = checkpoint(fn, x).sum();
    const auto buffers = state();
    const Tensor generator = testing::generator_state();
    *fail = true;
    EXPECT_THROW(y.backward({}, true), Refused);
    EXPECT_FALSE(x.grad().defined());
    EXPECT_TRUE(same_bits(buffers, state()));
    EXPECT_TRUE(same_bits(generator, testing::generator_state()));
    EXPECT_TRUE(torch::GradMode::is_enabled());
    *fail = false;
    y.backward();  // the next pass works
    EXPECT_TRUE(x.grad().defined());
    x.mutable_grad() = Tensor();
    testing::take_gradients(norm->parameters());
  }
  EXPECT_EQ(testing::live_bytes(), before_all);
}

// A catch-all in fn swallows the early stop; the rest then runs for nothing, but correctly.
TEST(Errors, EarlyStopSwallowedByTheFunction) {
  Tensor x = leaf({4});
  const auto fn = [](const Tensor& a) {
    Tensor b = a;
    try {
      b = a.exp();
    } catch (...) {
      b = a.sin();
    }
    return b + 1;
  };
  checkpoint(fn, x).sum().backward();
  EXPECT_TRUE(same_bits(x.grad(), x.exp().detach()));
}

// As code does that adds words to every error on its way.
TEST(Errors, EarlyStopTurnedIntoAnErrorByTheFunction) {
  Tensor x = leaf({4});
  const auto fn = [](const Tensor& a) {
    try {
      return a.exp();
    } catch (...) {
      throw Refused("in exp");
    }
  };
  checkpoint(fn, x).sum().backward();
  EXPECT_TRUE(same_bits(x.grad(), x.exp().detach()));
}

TEST(Leak, TenThousandIterationsKeepAllocatorBytesConstant) {
  at::set_num_threads(1);  // for speed: the tensors are tiny
  torch::manual_seed(1);
  torch::nn::Sequential block(torch::nn::Linear(8, 8), torch::nn::BatchNorm1d(8), torch::nn::ReLU(),
                              torch::nn::Dropout(0.5));
  Tensor x = leaf({4, 8});
  testing::live_bytes();
  const CheckpointOptions keep{.policy = keep_matmuls_and_convolutions()};
  const auto iterate = [&](int i) {
    Tensor y = checkpoint(block, x, i % 2 == 0 ? keep : CheckpointOptions{});
    y = checkpoint([block](const Tensor& a) mutable { return checkpoint(block, a).exp(); }, y);
    if (i % 3 != 0) {
      y.sum().backward({}, /*retain_graph=*/i % 3 == 1);
    }
    if (i % 5 == 0) {
      try {
        checkpoint(
            [](const Tensor& a) -> Tensor {
              a.exp().sin();
              throw Refused("leak?");
            },
            x);
      } catch (const Refused&) {
      }
    }
    testing::take_gradients(block->parameters());
    x.mutable_grad() = Tensor();
  };
  for (int i = 0; i < 30; ++i) {
    iterate(i);
  }
  const int64_t before = testing::live_bytes();
  for (int i = 0; i < 10000; ++i) {
    iterate(i);
  }
  EXPECT_EQ(testing::live_bytes(), before);
}

}  // namespace
}  // namespace remat
