// SPDX-License-Identifier: Apache-2.0
#include "remat/libtorch/value_checks.h"

#include <gtest/gtest.h>

#include "remat/libtorch/training_step.h"
#include "tests/libtorch/testing.h"

namespace remat {
namespace {

using at::Tensor;

// The names of the ops that updates wait for because they may fail.
std::vector<std::string> awaited(const std::function<Tensor(const Tensor& x, const Batch&)>& look_up) {
  torch::manual_seed(1);
  Tensor weight = torch::randn({6, 4}, at::requires_grad());
  Tensor velocity = torch::zeros({6, 4});
  const Batch batch = {torch::randint(4, {5}, at::kLong), torch::randint(4, {6, 4}, at::kLong)};
  TrainingStep step([&](const Batch& given) { return look_up(weight * 2, given).pow(2).sum(); },
                    {weight}, {},
                    {.plan_seconds = 0.1,
                     .measure_seconds = 0,
                     .update = [&] {
                       const at::NoGradGuard no_gradients;
                       velocity.mul_(0.9).add_(weight.grad());
                       weight.add_(velocity, -0.1);
                     }});
  step(batch);
  std::vector<std::string> names;
  const Graph& graph = step.graph();
  for (const Op& op : graph.ops) {
    for (const Value& effect : op.effects) {
      if (graph.storage(effect.storage).name == "checked.0") {
        names.push_back(op.kind);
      }
    }
  }
  return names;
}

using Names = std::vector<std::string>;

TEST(ValueChecks, IndicesThatForwardHasCheckedCannotFailInBackward) {
  EXPECT_EQ(awaited([](const Tensor& x, const Batch& batch) { return x.index({batch[0]}); }),
            Names{"aten::index"});
  EXPECT_EQ(awaited([](const Tensor& x, const Batch& batch) { return x.gather(1, batch[1]); }),
            Names{"aten::gather"});
}

TEST(ValueChecks, OtherSizesOrDimensionsMayFail) {
  const auto with_hook = [](int64_t dim, int64_t rows) {
    return awaited([=](const Tensor& x, const Batch& batch) {
      const Tensor y = x.index_select(0, batch[0]);
      y.register_hook([=](const Tensor& gradient) {
        return gradient + torch::ones({rows, rows}).index_select(dim, batch[0]).sum();
      });
      return y;
    });
  };
  EXPECT_EQ(with_hook(0, 4), (Names{"aten::index_select", "aten::index_select"}));
  EXPECT_EQ(with_hook(1, 6), (Names{"aten::index_select", "aten::index_select"}));
}

TEST(ValueChecks, IndicesThatChangeMayFail) {
  const Names names = awaited([](const Tensor& x, const Batch& batch) {
    const Tensor rows = batch[0].clone();
    const Tensor before = x.detach().index_select(0, rows);
    rows.add_(1);
    const Tensor y = x * before.sum();
    y.register_hook([rows](const Tensor& gradient) {
      return gradient + torch::ones({6, 4}).index_select(0, rows).sum();
    });
    return y;
  });
  EXPECT_EQ(names, (Names{"aten::index_select", "aten::index_select"}));
}

}  // namespace
}  // namespace remat
