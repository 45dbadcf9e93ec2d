// SPDX-License-Identifier: Apache-2.0
#include "remat/libtorch/fault_stack.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <torch/torch.h>

#include <array>
#include <cstring>
#include <vector>

#include "remat/libtorch/step.h"

namespace remat::testing {
namespace {

// So much of the stack is written, from the current place on.
void use_stack(size_t bytes) {
  std::array<volatile char, 4096> page;
  for (volatile char& each : page) {
    each = 1;
  }
  if (bytes > page.size()) {
    use_stack(bytes - page.size());
  }
  page[0] = page[1];  // no tail call
}

// A small alternate stack, as Python's faulthandler sets one up, with a watched margin below it.
class AlternateStack {
 public:
  AlternateStack() : memory_(kMargin + kBytes, kUntouched) {
    stack_t mine = {};
    mine.ss_sp = memory_.data() + kMargin;
    mine.ss_size = kBytes;
    EXPECT_EQ(sigaltstack(&mine, &before_), 0);
  }
  ~AlternateStack() { sigaltstack(&before_, nullptr); }
  bool margin_is_untouched() const {
    return std::all_of(memory_.begin(), memory_.begin() + kMargin, [](char c) { return c == kUntouched; });
  }

 private:
  static constexpr char kUntouched = 'u';
  static constexpr size_t kMargin = 256 * 1024;
  static constexpr size_t kBytes = 64 * 1024;
  std::vector<char> memory_;
  stack_t before_ = {};
};

int handled = 0;

void on_signal(int) {
  detail::call_on_large_stack([] {
    use_stack(1024 * 1024);
    ++handled;
    if (handled == 1) {
      raise(SIGUSR1);  // once more, from inside
    }
  });
}

TEST(FaultStack, LeavesTheMemoryBelowTheAlternateStackAlone) {
  const AlternateStack stack;
  struct sigaction action = {}, before = {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_ONSTACK | SA_NODEFER;
  ASSERT_EQ(sigaction(SIGUSR1, &action, &before), 0);
  handled = 0;
  raise(SIGUSR1);
  EXPECT_EQ(handled, 2);
  handled = 1;
  raise(SIGUSR1);  // the alternate stack is in place again
  EXPECT_EQ(handled, 2);
  EXPECT_TRUE(stack.margin_is_untouched());
  sigaction(SIGUSR1, &before, nullptr);
}

TEST(FaultStack, WithoutAnAlternateStackTheOwnOneIsUsed) {
  int calls = 0;
  detail::call_on_large_stack([&] { ++calls; });
  EXPECT_EQ(calls, 1);
}

// Reading a followed tensor through a const pointer runs half a training step inside of the handler. On
// the alternate stack that Python's faulthandler sets up it wrote over the heap.
TEST(FaultStack, AFollowedReadWorksBesideAnAlternateStack) {
  const AlternateStack stack;
  torch::manual_seed(0);
  torch::nn::Linear layer(8, 8);
  float last = 0;
  Step step(
      [&](const Batch& batch) {
        for (at::Tensor& parameter : layer->parameters()) {
          parameter.mutable_grad().reset();
        }
        const at::Tensor h = layer->forward(batch[0]).tanh();
        last = h.const_data_ptr<float>()[3];
        h.sum().backward();
        return Batch{h.detach()};
      },
      {.plan_seconds = 0.1, .measure_seconds = 0});
  for (int i = 0; i < 5; ++i) {
    const Batch results = step({torch::randn({4, 8})});
    EXPECT_EQ(last, results[0].const_data_ptr<float>()[3]);
  }
  EXPECT_TRUE(stack.margin_is_untouched());
}

}  // namespace
}  // namespace remat::testing
