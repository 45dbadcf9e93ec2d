// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "remat/libtorch/checkpoint.h"

namespace remat {

// A layer of a chain, as checkpoint_sequential sees it. The id tells whether the layers are those
// of the last call; null: not known.
struct Layer {
  std::function<at::Tensor(const at::Tensor&)> forward;
  const void* id = nullptr;
};

// What a layer needs, for one input.
struct LayerCost {
  int64_t time_ns = 0;
  int64_t saved_bytes = 0;   // what autograd saves in it, its input and parameters not counted
  int64_t output_bytes = 0;  // what a segment that ends here keeps
  bool operator==(const LayerCost&) const = default;
};

struct SequentialOptions {
  // Segments of similar need instead of a similar number of layers. The layers are measured on the
  // first call with these layers and this input shape (two extra forwards, which leave parameters,
  // buffers and generators alone); layers given as bare functions are measured on every call.
  bool balanced = false;
  // The number of layers of each segment, instead of either. Must add up to all layers.
  std::vector<int64_t> segment_sizes = {};
  CheckpointOptions checkpoint = {};
};

// Runs the layers one after another in `segments` parts (at most one per layer) of which all but
// the last are checkpointed: the last would be run again at once.
at::Tensor checkpoint_sequential(const std::vector<Layer>& layers, int64_t segments,
                                 const at::Tensor& input, const SequentialOptions& options = {});

// Measures the layers on an input, without side effects.
std::vector<LayerCost> measure_layers(const std::vector<Layer>& layers, const at::Tensor& input);

// The sizes of the segments that need the least memory: the inputs kept plus what the largest
// segment saves. Among equals, those that repeat the least work.
std::vector<int64_t> balance_segments(const std::vector<LayerCost>& costs, int64_t segments);

namespace detail {

template <typename Module>
Layer make_layer(Module module) {
  const void* id = nullptr;
  if constexpr (requires { module.ptr().get(); }) {
    id = module.ptr().get();
  }
  return {[module](const at::Tensor& x) mutable -> at::Tensor { return call_block(module, x); },
          id};
}

template <typename Modules>
std::vector<Layer> make_layers(const Modules& modules) {
  std::vector<Layer> layers;
  if constexpr (requires { modules->begin(); }) {
    for (auto& module : *modules) {
      layers.push_back(make_layer(module));
    }
  } else {
    for (auto& module : modules) {
      layers.push_back(make_layer(module));
    }
  }
  return layers;
}

}  // namespace detail

// The same for a torch::nn::Sequential, or a container of modules or of functions.
template <typename Modules>
at::Tensor checkpoint_sequential(const Modules& modules, int64_t segments, const at::Tensor& input,
                                 const SequentialOptions& options = {}) {
  return checkpoint_sequential(detail::make_layers(modules), segments, input, options);
}

}  // namespace remat
