// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "remat/libtorch/op_values.h"

// What a step may not do: errors that name the op, its layer and what to do instead.
namespace remat::detail {

// Throws Error, beginning with [verb], if an op cannot be part of a step. `follows`: values may be
// read on the host.
void refuse(const char* verb, bool follows, const c10::OperatorHandle& op, Values arguments,
            const std::string& scope);

// Tensors that an op writes, as they are before it. An out= argument that was too small, resize_ and
// set_ give a tensor other bytes than it had; a replay, whose tensors have fixed places, could not.
class WrittenTensors {
 public:
  void add(const at::Tensor& tensor);
  // Throws Error, beginning with [verb], if one of them has another storage or size now.
  void check_in_place(const char* verb, const c10::OperatorHandle& op,
                      const std::string& scope) const;

 private:
  struct Written {
    at::Tensor tensor;
    const c10::StorageImpl* storage;
    size_t bytes;
  };
  std::vector<Written> tensors_;
};

}  // namespace remat::detail
