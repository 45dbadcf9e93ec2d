// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/Storage.h>
#include <c10/util/DimVector.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "remat/core/graph.h"
#include "remat/libtorch/packing_kernels.h"

namespace remat {

using Batch = std::vector<at::Tensor>;

// How a tensor looks at the bytes of its storage.
struct Window {
  c10::ScalarType dtype = c10::ScalarType::Undefined;
  c10::DimVector sizes;
  c10::DimVector strides;
  int64_t offset = 0;           // in elements
  bool wrapped_number = false;  // made from a C++ number: weaker in type promotion
  bool conjugated = false;      // lazily: whoever reads it turns the sign of the imaginary part
  bool negated = false;         // lazily
  bool operator==(const Window&) const = default;
};

// A tensor of the step, as a window onto a storage of the graph. Views need no op of their own: a
// step is run again by looking at the same bytes through the same windows.
struct TensorView : Window {
  StorageId storage{};
  bool operator==(const TensorView&) const = default;
};

// Where a tensor stands among an op's arguments (or results): at `position`, or at `element` of the
// list there.
struct TensorPlace {
  int32_t position = 0;
  int32_t element = -1;
  bool operator==(const TensorPlace&) const = default;
};

struct TensorArgument {
  TensorPlace place;
  TensorView view;
  bool shape_only = false;  // the op looks at sizes and type, not at the bytes (empty_like)
  bool operator==(const TensorArgument&) const = default;
};

// One request for memory while the op runs: for its `result`-th created storage, or scratch at an
// offset of the op's workspace.
struct Allocation {
  int64_t bytes = 0;
  int32_t result = -1;
  int64_t workspace_offset = -1;
  bool operator==(const Allocation&) const = default;
};

// One op with everything that is needed to call it again.
struct TapeOp {
  c10::OperatorHandle op;
  c10::DispatchKeySet keys = {};             // below autograd
  bool grad_mode = false;                    // some kernels return more with it (RNN layers)
  std::vector<c10::IValue> arguments = {};   // undefined where tensors go
  std::vector<TensorArgument> tensors = {};
  std::vector<TensorPlace> results = {};     // of the created storages, in the graph's order
  std::vector<Allocation> allocations = {};  // in the order of the requests
};

// Where the bytes of an external storage are when a step runs.
struct ExternalSource {
  enum class Kind : uint8_t {
    tensor,    // those of `tensor`: a parameter, a buffer, something the function holds
    gradient,  // those of the gradient that parameter `position` had before the step
    batch,     // those of the batch's tensor `position`
    constant,  // those of `tensor`, made anew by every call of the function, with equal contents
    backup,    // copies of the externals that the step writes, to put back after a failure
    token,     // no bytes: says what must come before what
  };
  Kind kind = Kind::tensor;
  at::Tensor tensor = {};
  int32_t position = -1;
  bool written = false;    // by the step
  bool backed_up = false;  // a failed step must put it back
};

// An op that can read packed bytes in place of one of its arguments.
struct PackedReader {
  enum class Kernel : uint8_t { threshold_backward, hardtanh_backward, leaky_relu_backward, mul };
  Kernel kernel{};
  TensorPlace packed;  // where the value stands that is packed, ...
  TensorPlace other;   // ... and the other tensor
  double slope = 0;    // of leaky_relu_backward
};

// How a value is packed that the graph has a packed form of.
struct PackedValue {
  detail::PackFormat format;
  std::vector<PackedReader> readers;  // in the order of PackedForm::readers
};

// A captured step: the graph, and for each of its ops and externals what core does not know.
// graph.ops and tape run in parallel, as do the graph's externals and `externals`, and its packed_forms and
// `packed_values`.
struct Recording {
  Graph graph;
  std::vector<TapeOp> tape;
  std::vector<ExternalSource> externals;
  std::vector<PackedValue> packed_values;
  std::vector<at::Tensor> parameters;
  // What every parameter, the gradient that it had before (if any) and a batch must look like when
  // the step runs.
  std::vector<TensorView> parameter_views;
  std::vector<std::optional<TensorView>> gradients_before;
  std::vector<TensorView> batch;

  TensorView loss;
  // One for each parameter; none where no gradient arrives, or where it is added to the one that
  // was there.
  std::vector<std::optional<TensorView>> gradients;

  int64_t eager_peak_bytes = 0;  // of the captured run: externals and everything allocated
  int threads = 0;               // at::get_num_threads() while capturing
};

}  // namespace remat
