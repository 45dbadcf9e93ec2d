// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/libtorch/training.h"

namespace remat::testing {

inline at::Tensor parameter(at::IntArrayRef sizes) {
  return torch::randn(sizes, at::requires_grad());
}

inline std::vector<Batch> batches(at::IntArrayRef sizes) {
  return {{torch::randn(sizes)}, {torch::randn(sizes)}, {torch::randn(sizes)}};
}

inline void expect_contains(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << text;
}

class CaptureFixture : public ::testing::Test {
 protected:
  void SetUp() override { torch::manual_seed(3); }

  // A loss of one weight [4, 6] and one input [5, 6], through h = x w^T [5, 4].
  template <typename Loss>
  Problem on_matrix(Loss loss) {
    const at::Tensor w = parameter({4, 6});
    return {.parameters = {w},
            .loss =
                [w, loss](const Batch& batch) mutable {
                  return loss(torch::matmul(batch[0], w.t()), batch);
                },
            .batches = batches({5, 6})};
  }
};

}  // namespace remat::testing
