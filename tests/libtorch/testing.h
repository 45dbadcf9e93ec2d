// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/torch.h>

#include <string>
#include <vector>

#include "tests/testing/skip.h"

namespace remat::testing {

// Same shape, type and bytes; both undefined counts as the same.
bool same_bits(const at::Tensor& a, const at::Tensor& b);
bool same_bits(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b);

// The default generator's state.
at::Tensor generator_state();

// Random numbers that want a gradient; the same ones for the same seed.
at::Tensor leaf(at::IntArrayRef sizes, uint64_t seed = 1);

// Clones of the gradients of `tensors`, which are then cleared. An undefined gradient stays so.
std::vector<at::Tensor> take_gradients(const std::vector<at::Tensor>& tensors);

std::vector<at::Tensor> clones(const std::vector<at::Tensor>& tensors);

}  // namespace remat::testing
