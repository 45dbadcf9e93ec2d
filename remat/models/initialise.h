// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/nn.h>

namespace remat::models {

// How the transformers and their kin start: weights of all linear, convolution and embedding layers
// of `module` normal with deviation 0.02, biases zero. Norms keep one and zero.
inline constexpr double kInitialDeviation = 0.02;
void initialise_normal(torch::nn::Module& module);

}  // namespace remat::models
