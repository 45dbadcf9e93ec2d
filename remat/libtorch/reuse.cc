// SPDX-License-Identifier: Apache-2.0
#include "remat/libtorch/reuse.h"

#include <ATen/core/enum_tag.h>

#include <algorithm>
#include <array>
#include <string_view>

namespace remat::detail {
namespace {

// Each row of the last dimension is read whole before it is written. `sources` are the arguments
// whose place result 0 may take.
struct RowWise {
  std::string_view name;
  int sources;         // the first so many arguments
  int dim_argument;    // must be the last dimension; -1 if the op has none
};
constexpr std::array kRowWise = {
    RowWise{"aten::_softmax", 1, 1},
    RowWise{"aten::_log_softmax", 1, 1},
    RowWise{"aten::_softmax_backward_data", 2, 2},
    RowWise{"aten::_log_softmax_backward_data", 2, 2},
    RowWise{"aten::native_layer_norm", 1, -1},
};

bool contiguous(const TensorView& view) {
  int64_t expected = 1;
  for (size_t i = view.sizes.size(); i-- > 0;) {
    if (view.sizes[i] != 1 && view.strides[i] != expected) {
      return false;
    }
    expected *= view.sizes[i];
  }
  return view.offset == 0;
}

bool same_window(const TensorView& a, const TensorView& b) {
  return a.dtype == b.dtype && a.sizes == b.sizes && a.strides == b.strides && a.offset == b.offset;
}

bool is_row_wise(const RowWise& known, const SeenOp& op, const TensorView& result,
                 const TensorPlace& source) {
  if (source.position >= known.sources || !contiguous(result) || result.sizes.empty()) {
    return false;
  }
  if (known.dim_argument < 0) {
    return true;
  }
  const auto rank = static_cast<int64_t>(result.sizes.size());
  const int64_t dim = op.call.arguments[static_cast<size_t>(known.dim_argument)].toInt();
  return (dim + rank) % rank == rank - 1;
}

bool may_take(const SeenOp& op, size_t created, const TensorArgument& source) {
  const TensorView& result = op.created[created];
  const std::string_view name = op.call.op.schema().name();
  const auto known = std::ranges::find(kRowWise, name, &RowWise::name);
  if (known != kRowWise.end()) {
    return created == 0 && is_row_wise(*known, op, result, source.place);
  }
  // Scratch would mean that the kernel is not one pass over the elements; of several results one
  // could be written before another has read.
  return op.call.op.hasTag(at::Tag::pointwise) && op.workspace_bytes == 0 && !op.random &&
         op.creates.size() == 1;
}

}  // namespace

std::vector<std::pair<int32_t, int32_t>> reuse_pairs(const SeenOp& op,
                                                     const std::vector<SeenStorage>& storages) {
  std::vector<std::pair<int32_t, int32_t>> pairs;
  if (!op.updates.empty() || !op.effects.empty()) {
    return pairs;
  }
  for (size_t i = 0; i < op.creates.size(); ++i) {
    const int64_t bytes = storages[static_cast<size_t>(op.creates[i])].bytes;
    for (const TensorArgument& source : op.call.tensors) {
      const auto number = static_cast<int32_t>(source.view.storage);
      const SeenStorage& storage = storages[static_cast<size_t>(number)];
      const bool read = std::ranges::find(op.reads, number) != op.reads.end();
      const bool whole = source.place.element < 0 && storage.bytes == bytes && bytes > 0;
      // The same bytes through another window would be read after they were written.
      const bool one_window = std::ranges::all_of(op.call.tensors, [&](const TensorArgument& each) {
        return each.view.storage != source.view.storage || same_window(each.view, op.created[i]);
      });
      const auto pair = std::pair(op.creates[i], number);
      if (read && whole && one_window && !storage.external && may_take(op, i, source) &&
          std::ranges::find(pairs, pair) == pairs.end()) {
        pairs.push_back(pair);
      }
    }
  }
  return pairs;
}

}  // namespace remat::detail
