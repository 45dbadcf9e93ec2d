// SPDX-License-Identifier: Apache-2.0
#include "remat/libtorch/reuse.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <algorithm>

#include "remat/libtorch/op_traits.h"

namespace remat::detail {
namespace {

bool contiguous(const Window& view) {
  int64_t expected = 1;
  for (size_t i = view.sizes.size(); i-- > 0;) {
    if (view.sizes[i] != 1 && view.strides[i] != expected) {
      return false;
    }
    expected *= view.sizes[i];
  }
  return view.offset == 0;
}

bool same_window(const Window& a, const Window& b) {
  return a.dtype == b.dtype && a.sizes == b.sizes && a.strides == b.strides && a.offset == b.offset;
}

// Each row of the last dimension is read whole before it is written.
bool is_row_wise(const OpTraits& traits, const SeenOp& op, const Window& result,
                 const TensorPlace& source) {
  if (source.position >= traits.row_wise_sources || !contiguous(result) || result.sizes.empty()) {
    return false;
  }
  if (traits.row_dim_argument < 0) {
    return true;
  }
  const auto rank = static_cast<int64_t>(result.sizes.size());
  const int64_t dim = op.arguments[static_cast<size_t>(traits.row_dim_argument)].toInt();
  return (dim + rank) % rank == rank - 1;
}

bool may_take(const SeenOp& op, size_t created, const SeenTensor& source) {
  const OpTraits& traits = traits_of(op.op);
  if (traits.row_wise_sources > 0) {
    return created == 0 && is_row_wise(traits, op, op.created[created].view, source.place);
  }
  // Scratch would mean that the kernel is not one pass over the elements; of several results one
  // could be written before another has read.
  return traits.pointwise && op.workspace_bytes == 0 && !op.random && op.creates.size() == 1;
}

}  // namespace

std::vector<std::pair<StorageNumber, StorageNumber>> reuse_pairs(const SeenOp& op,
                                                                const Trace& trace) {
  std::vector<std::pair<StorageNumber, StorageNumber>> pairs;
  if (!op.updates.empty() || !op.effects.empty() || op.kind != CallKind::op) {
    return pairs;
  }
  for (size_t i = 0; i < op.creates.size(); ++i) {
    const int64_t bytes = trace[op.creates[i]].bytes;
    for (const SeenTensor& source : op.tensors) {
      const StorageNumber number = source.view.storage;
      const SeenStorage& storage = trace[number];
      const bool read = std::ranges::find(op.reads, number) != op.reads.end();
      const bool whole = source.place.element < 0 && storage.bytes == bytes && bytes > 0;
      // The same bytes through another window would be read after they were written.
      const bool one_window = std::ranges::all_of(op.tensors, [&](const SeenTensor& each) {
        return each.view.storage != number || same_window(each.view, op.created[i].view);
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
