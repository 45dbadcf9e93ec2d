// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <atomic>
#include <functional>
#include <thread>
#include <vector>

#include "remat/libtorch/checkpoint.h"
#include "tests/libtorch/testing.h"

// Several threads with checkpoints of their own. Also built with ThreadSanitizer (preset tsan).

namespace remat {
namespace {

using at::Tensor;
using testing::same_bits;

void in_threads(int count, const std::function<void(int)>& work) {
  // LibTorch, which is not built with the sanitizer, makes its default generator on first use
  // behind a guard that ThreadSanitizer cannot see: that must be before the threads start.
  torch::manual_seed(0);
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) {
    threads.emplace_back(work, i);
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

TEST(Threads, EachWithItsOwnRegions) {
  std::atomic<int> wrong{0};
  in_threads(4, [&wrong](int) {
    const auto fn = [](const Tensor& a) {
      return checkpoint([](const Tensor& b) { return b.sin().exp(); }, a.exp());
    };
    for (int i = 0; i < 50; ++i) {
      Tensor x = torch::full({16}, 0.01 * i).requires_grad_();
      checkpoint(fn, x).sum().backward();
      wrong += !same_bits(x.grad(), torch::autograd::grad({x.exp().sin().exp().sum()}, {x})[0]);
    }
  });
  EXPECT_EQ(wrong, 0);
}

// All threads draw from the one default generator. The mask of the re-run must still be that of the
// first run: the gradient is zero exactly where the output is.
TEST(Threads, DropoutMasksSurviveOtherThreadsDrawing) {
  std::atomic<int> wrong{0};
  in_threads(4, [&wrong](int thread) {
    for (int i = 0; i < 50; ++i) {
      if (thread == 3) {
        torch::randn({100});
        continue;
      }
      Tensor x = torch::ones({300}).requires_grad_();
      const Tensor y = checkpoint(
          [](const Tensor& a) {
            Tensor b = a.exp();
            for (int layer = 0; layer < 3; ++layer) {
              b = at::dropout(b, 0.3, true).sin();
            }
            return b;
          },
          x);
      y.sum().backward();
      wrong += !same_bits(y.ne(0), x.grad().ne(0));
    }
  });
  EXPECT_EQ(wrong, 0);
}

TEST(Threads, ForwardInOneBackwardInAnother) {
  Tensor x = torch::ones({8}).requires_grad_();
  Tensor y;
  std::thread([&] {
    y = checkpoint([](const Tensor& a) { return a.exp().sin(); }, x).sum();
  }).join();
  std::thread([&] { y.backward(); }).join();
  EXPECT_TRUE(same_bits(x.grad(), torch::autograd::grad({x.exp().sin().sum()}, {x})[0]));
}

TEST(Threads, SeveralBackwardPassesOverOneGraph) {
  Tensor x = torch::ones({64}).requires_grad_();
  const Tensor y = checkpoint([](const Tensor& a) { return a.exp().sin().exp().tanh(); }, x).sum();
  const Tensor expected = torch::autograd::grad({x.exp().sin().exp().tanh().sum()}, {x})[0];
  std::atomic<int> wrong{0};
  in_threads(4, [&](int) {
    for (int i = 0; i < 25; ++i) {
      wrong += !same_bits(expected, torch::autograd::grad({y}, {x}, {}, /*retain_graph=*/true)[0]);
    }
  });
  EXPECT_EQ(wrong, 0);
}

TEST(Threads, ExceptionsStayInTheirThread) {
  std::atomic<int> caught{0};
  in_threads(4, [&caught](int thread) {
    for (int i = 0; i < 20; ++i) {
      Tensor x = torch::ones({4}).requires_grad_();
      try {
        checkpoint(
            [thread](const Tensor& a) {
              if (thread % 2 == 0) {
                throw std::runtime_error("thread");
              }
              return a.exp();
            },
            x)
            .sum()
            .backward();
      } catch (const std::runtime_error&) {
        ++caught;
      }
    }
  });
  EXPECT_EQ(caught, 40);
}

}  // namespace
}  // namespace remat
