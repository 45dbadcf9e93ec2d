// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "remat/libtorch/scope.h"

namespace remat::models {

// A part of a model whose only tensor inputs are its arguments and parameters.
using Block = std::function<at::Tensor(const std::vector<at::Tensor>&)>;

// How a model runs its blocks. A block holds the modules it uses and may be called again later.
using BlockRunner = std::function<at::Tensor(Block, std::vector<at::Tensor>)>;

// Calls each block and nothing else.
inline at::Tensor run_plain(const Block& block, const std::vector<at::Tensor>& inputs) {
  return block(inputs);
}

// Runs a module as one block, in the Scope of that name whenever it is called.
template <typename Module>
at::Tensor run_block(const BlockRunner& run, std::string name, Module module, at::Tensor x) {
  return run(
      [name = std::move(name),
       module = std::move(module)](const std::vector<at::Tensor>& in) mutable {
        Scope scope(name);
        return module->forward(in[0]);
      },
      {std::move(x)});
}

// Runs modules one after the other, each as one block: name0, name1, ...
template <typename Module>
at::Tensor run_blocks(const BlockRunner& run, const std::string& name,
                      const std::vector<Module>& modules, at::Tensor x) {
  for (size_t i = 0; i < modules.size(); ++i) {
    x = run_block(run, name + std::to_string(i), modules[i], std::move(x));
  }
  return x;
}

// Runs a layer in the Scope of that name.
template <typename Module>
at::Tensor run_layer(std::string_view name, Module& module, const at::Tensor& x) {
  Scope scope(name);
  return module->forward(x);
}

}  // namespace remat::models
