// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "remat/libtorch/variant.h"

namespace remat::detail {

// A step that was followed once, as it can be run again without calling its function
// (StepOptions::follow): on the bytes of another batch and of what lives between steps.
struct Repetition {
  // A tensor of the run: one that it made, or one that was there.
  struct Made {
    std::optional<StorageNumber> storage = {};  // none: the tensor itself
    Window window = {};
    at::Tensor tensor = {};
  };
  struct Gradient {
    c10::weak_intrusive_ptr<c10::TensorImpl> parameter;
    Made made;
  };
  std::vector<c10::Storage> externals;  // by storage; none for the batch's
  std::vector<Window> batch;
  std::vector<Gradient> gradients;
  std::vector<Made> results;
};

// Throws Error if the batch does not look like the one that was followed. `use_arena` as StepContext's.
Batch repeat(Variant& variant, const Repetition& repetition, const Batch& batch,
             const std::function<int64_t(Variant&)>& use_arena);

}  // namespace remat::detail
