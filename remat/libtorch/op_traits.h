// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/stack.h>
#include <c10/core/Device.h>

#include <functional>
#include <vector>

namespace c10 {
class OperatorHandle;
}

namespace remat::detail {

// What an op does beyond computing fresh results, read once from its schema and tags, and corrected
// where the schema is silent.
struct OpTraits {
  bool random = false;          // draws from a generator
  int generator_argument = -1;  // index of its Generator argument, -1 if it takes none
  std::vector<int> written;     // indices of the arguments it changes in place
  bool returns_view = false;    // some result shares the storage of an argument it only reads
  bool hides_view = false;      // as returns_view, but with a version counter of its own
  bool fresh_results = false;   // every result is a new tensor
  bool is_cast = false;         // autocast makes it or finds its result in a cache
};

// The reference is valid for the life of the thread.
const OpTraits& traits_of(const c10::OperatorHandle& op);

// Calls visit(tensor) for every defined tensor in a value: a tensor or a list of (optional)
// tensors.
void for_each_tensor(const c10::IValue& value, const std::function<void(const at::Tensor&)>& visit);

// Replaces every defined tensor in a value by map(tensor). A list is rebuilt only if one of its
// tensors changes.
void map_tensors(c10::IValue& value, const std::function<at::Tensor(const at::Tensor&)>& map);

// The device an op works on, from its arguments; the CPU where nothing says otherwise.
c10::Device device_of(c10::ArrayRef<c10::IValue> arguments);

}  // namespace remat::detail
