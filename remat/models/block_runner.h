// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

namespace remat::models {

// A part of a model whose only tensor inputs are its arguments and parameters.
using Block = std::function<at::Tensor(const std::vector<at::Tensor>&)>;

// How a model runs its blocks. A block holds the modules it uses and may be called again later.
using BlockRunner = std::function<at::Tensor(Block, std::vector<at::Tensor>)>;

// Calls each block and nothing else.
inline at::Tensor run_plain(const Block& block, const std::vector<at::Tensor>& inputs) {
  return block(inputs);
}

}  // namespace remat::models
