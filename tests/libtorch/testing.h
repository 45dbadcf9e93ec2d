// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/torch.h>

#include <string>
#include <vector>

#include "remat/models/zoo.h"

namespace remat::testing {

// Same shape, type and bytes; both undefined counts as the same.
bool same_bits(const at::Tensor& a, const at::Tensor& b);
bool same_bits(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b);

// The default generator's state.
at::Tensor generator_state();

// Clones of the gradients of `tensors`, which are then cleared. An undefined gradient stays so.
std::vector<at::Tensor> take_gradients(const std::vector<at::Tensor>& tensors);

std::vector<at::Tensor> clones(const std::vector<at::Tensor>& tensors);

// Every model of the zoo, for tests that run on each.
std::vector<std::string> zoo_names();

// A size at which a step of any zoo model takes milliseconds and every kind of layer is there.
models::ModelSize tiny_size(const models::ZooEntry& entry);

}  // namespace remat::testing
