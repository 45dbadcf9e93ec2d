// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/stack.h>
#include <c10/core/Device.h>

#include <functional>
#include <string>
#include <vector>

namespace c10 {
class OperatorHandle;
}

// Everything that is known about ops, read once from schema and tags and corrected by the tables in
// op_traits.cc where they are silent. No other file asks for an op's name.
namespace remat::detail {

struct OpTraits {
  bool random = false;          // draws from a generator
  int generator_argument = -1;  // index of its Generator argument, -1 if it takes none
  std::vector<int> written;     // indices of the arguments it changes in place
  bool returns_view = false;    // some result shares the storage of an argument it only reads
  bool hides_view = false;      // as returns_view, but with a version counter of its own
  bool fresh_results = false;   // every result is a new tensor
  bool is_cast = false;         // autocast makes it or finds its result in a cache

  bool changes_view = false;      // changes sizes and strides of its argument, not bytes (unsqueeze_)
  bool shape_only = false;        // wants sizes and type of its arguments, not bytes (empty_like)
  bool uninitialised = false;     // its results hold whatever was there (empty)
  bool metadata_only = false;     // looks at no bytes and makes no tensor (is_same_size)
  bool reads_on_host = false;     // gives the host a value (item)
  bool shape_from_values = false; // the shape of a result may depend on bytes: see shape_depends
  bool shape_from_numbers = false;  // the shape of a result follows from numbers (arange)
  bool collective = false;        // talks to other processes
  bool foreign = false;           // not an ATen op: nothing is known about it
  // Arguments whose bytes it reads on the host before any kernel of its own runs: a composite op.
  std::vector<int> host_arguments;
  bool host_arguments_without_gradient = false;  // only where none is needed
  bool marker = false;            // computes nothing: tells a profiler where the program is
  bool reshapes_storage = false;  // gives a tensor another storage or another size (set_, resize_)
  bool may_fail_on_values = false;  // throws where a value is out of range (embedding)
  // BatchNorm in training changes its running statistics and does not look at them (an effect); in
  // evaluation it reads them. The index of the flag that tells; -1 for other ops.
  int training_argument = -1;
  // By argument: a number that can change neither the shape of a result nor what the op costs. It may
  // be another one in the next step.
  std::vector<bool> free_number;
  // Results may be written over the first so many arguments, where rows of the last dimension are
  // read whole before they are written; `row_dim_argument` must then name that dimension.
  int row_wise_sources = 0;
  int row_dim_argument = -1;
  bool pointwise = false;
  // Takes lists of tensors of equal length; the same as calls with lists of one element, one after the
  // other, bit for bit.
  bool by_element = false;
  // The same row by row of the first dimension, bit for bit, for rows that row_parts.cc accepts.
  enum class Rows : uint8_t {
    no,
    of_all,        // of every argument that has the result's sizes
    of_first,      // of the first argument; the others are needed whole (mm)
    of_embedding,  // of nothing: which rows get something is in the indices (embedding_dense_backward)
  };
  Rows rows = Rows::no;
  // The two halves of a cross entropy's backward: see loss_parts.h.
  enum class Loss : uint8_t { no, nll_backward, softmax_backward };
  Loss loss = Loss::no;
};

// The reference is valid for the life of the thread.
const OpTraits& traits_of(const c10::OperatorHandle& op);

// Indexing makes a shape that depends on values only where an index is a mask.
bool shape_depends_on_values(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> arguments);

// Declares that an op outside of ATen is a pure function of its arguments, apart from what its schema
// says: it may be run again. Without it such an op is run once. `name` as in "mylib::fused_gelu".
void declare_pure(const std::string& name);

// Calls visit(tensor) for every defined tensor in a value: a tensor or a list of (optional)
// tensors.
void for_each_tensor(const c10::IValue& value, const std::function<void(const at::Tensor&)>& visit);

// Replaces every defined tensor in a value by map(tensor). A list is rebuilt only if one of its
// tensors changes.
void map_tensors(c10::IValue& value, const std::function<at::Tensor(const at::Tensor&)>& map);

// The device an op works on, from its arguments; the CPU where nothing says otherwise.
c10::Device device_of(c10::ArrayRef<c10::IValue> arguments);

}  // namespace remat::detail
