// SPDX-License-Identifier: Apache-2.0
#include "remat/libtorch/loss_parts.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "remat/libtorch/op_traits.h"
#include "remat/libtorch/op_values.h"
#include "remat/libtorch/row_windows.h"

namespace remat::detail {
namespace {

using Loss = OpTraits::Loss;

// Where arguments stand in nll_loss_backward(grad_output, self, target, weight, …) and in
// _log_softmax_backward_data(grad_output, output, dim, input_dtype, *, out).
constexpr int32_t kSelf = 1;
constexpr int32_t kTarget = 2;
constexpr int32_t kGradOutput = 0;
constexpr int32_t kOutput = 1;
constexpr size_t kDim = 2;
constexpr int32_t kOut = 4;

const c10::OperatorHandle& backward_into_op() {
  static const c10::OperatorHandle op =
      c10::Dispatcher::singleton().findSchemaOrThrow("aten::_log_softmax_backward_data", "out");
  return op;
}

const SeenTensor* argument(const SeenOp& op, int32_t position) {
  const auto found = std::ranges::find_if(
      op.tensors, [&](const SeenTensor& each) { return each.place == TensorPlace{position, -1}; });
  return found == op.tensors.end() ? nullptr : &*found;
}

// The two ops of one backward, as places in the trace.
struct LossBackward {
  size_t nll = 0;
  size_t softmax = 0;
};

class LossTiling {
 public:
  explicit LossTiling(PartedTrace& parted)
      : parted_(parted), trace_(parted.trace), users_(trace_.storages.size()) {}

  void run() {
    bool has_update = false;
    for (size_t i = 0; i < trace_.ops.size(); ++i) {
      const SeenOp& op = trace_.ops[i];
      has_update = has_update || op.phase == Phase::optimizer;
      for (const auto* numbers : {&op.reads, &op.updates, &op.effects, &op.creates}) {
        for (size_t j = 0; op.computes() && j < numbers->size(); ++j) {
          users_[index((*numbers)[j])].push_back(i);
        }
      }
    }
    for (size_t i = 0; has_update && i < trace_.ops.size(); ++i) {
      if (const auto found = backward_at(i)) {
        found_.push_back(*found);
      }
    }
    if (!found_.empty()) {
      emit();
    }
  }

 private:
  // Made by one op of the step as a whole, and seen by nobody outside.
  bool is_private(StorageNumber number) const {
    const SeenStorage& storage = trace_[number];
    return !storage.external && !storage.output && !storage.before_host_write && !storage.host_writes_later &&
           !storage.borrowed && storage.bytes >= kLargeBytes;
  }

  bool makes_whole(const SeenOp& op) const {
    return op.kind == CallKind::op && op.computes() && op.creates.size() == 1 && op.updates.empty() &&
           op.effects.empty() && op.workspace_bytes == 0 && op.allocations.size() == 1 &&
           request_for_result(op) != op.allocations.end() && is_plain(op.created.front().view) &&
           bytes_of(op.created.front().view) == trace_[op.creates.front()].bytes &&
           is_private(op.creates.front());
  }

  std::optional<LossBackward> backward_at(size_t i) const {
    const SeenOp& softmax = trace_.ops[i];
    if (traits_of(softmax.op).loss != Loss::softmax_backward || !makes_whole(softmax)) {
      return std::nullopt;
    }
    const Window& shape = softmax.created.front().view;
    const SeenTensor* const gradient = argument(softmax, kGradOutput);
    const SeenTensor* const output = argument(softmax, kOutput);
    const int64_t dim = softmax.arguments[kDim].toInt();
    const auto same = [&](const SeenTensor* tensor) {
      return tensor != nullptr && is_plain(tensor->view) && tensor->view.sizes == shape.sizes &&
             tensor->view.dtype == shape.dtype;
    };
    if (shape.sizes.size() != 2 || (dim != 1 && dim != -1) || !same(gradient) || !same(output)) {
      return std::nullopt;
    }
    const StorageNumber out = output->view.storage;
    const auto& gradient_users = users_[index(gradient->view.storage)];
    // Nobody but the two has the gradient, and `out` ends here.
    if (!is_private(out) || trace_[out].bytes != bytes_of(shape) || users_[index(out)].back() != i ||
        gradient_users.size() != 2) {
      return std::nullopt;
    }
    const LossBackward found{.nll = gradient_users.front(), .softmax = i};
    return nll_fits(found, out) ? std::optional(found) : std::nullopt;
  }

  bool nll_fits(const LossBackward& found, StorageNumber out) const {
    const SeenOp& nll = trace_.ops[found.nll];
    if (traits_of(nll.op).loss != Loss::nll_backward || !makes_whole(nll)) {
      return false;
    }
    const Window& shape = nll.created.front().view;
    const SeenTensor* const self = argument(nll, kSelf);
    const SeenTensor* const target = argument(nll, kTarget);
    const SeenTensor* const gradient = argument(nll, kGradOutput);
    if (self == nullptr || self->view.storage != out || self->view.sizes != shape.sizes || !is_plain(self->view) ||
        gradient == nullptr || elements(gradient->view) != 1 || target == nullptr ||
        target->view.sizes.size() != 1 || target->view.sizes[0] != shape.sizes[0] ||
        !is_plain_part(target->view)) {
      return false;
    }
    for (size_t between = found.nll + 1; between < found.softmax; ++between) {
      if (trace_.ops[between].computes() && disturb(nll, trace_.ops[between])) {
        return false;
      }
    }
    return true;
  }

  // ---- tiles

  void emit() {
    std::vector<SeenOp> ops = std::exchange(trace_.ops, {});
    const std::vector<OpPart> parts = std::exchange(parted_.parts, {});
    std::vector<std::pair<StorageNumber, StorageNumber>> renamed;  // what was made, and what has it now
    const auto add = [&](SeenOp op, OpPart part) {
      trace_.ops.push_back(std::move(op));
      parted_.parts.push_back(part);
    };
    for (size_t i = 0; i < ops.size(); ++i) {
      const auto is_at = [&](size_t LossBackward::*place) {
        return std::ranges::find(found_, i, place);
      };
      if (is_at(&LossBackward::nll) != found_.end()) {
        continue;
      }
      for (const auto& [from, to] : renamed) {
        rename(ops[i], from, to);
      }
      const auto found = is_at(&LossBackward::softmax);
      if (found == found_.end()) {
        add(std::move(ops[i]), parts[i]);
        continue;
      }
      const SeenOp& nll = ops[found->nll];
      const Window& shape = ops[i].created.front().view;
      const int64_t count = (bytes_of(shape) + kTileBytes - 1) / kTileBytes;
      const int64_t rows = (shape.sizes[0] + count - 1) / count;
      for (int64_t first = 0; first < shape.sizes[0]; first += rows) {
        const int64_t here = std::min(rows, shape.sizes[0] - first);
        OpPart part = parts[found->nll];
        part.is_tile = true;
        add(nll_tile(nll, first, here), part);
        part = parts[i];
        part.is_tile = true;
        add(softmax_tile(ops[i], trace_.ops.back().creates.front(), first, here), part);
      }
      renamed.emplace_back(ops[i].creates.front(), argument(ops[i], kOutput)->view.storage);
    }
  }

  static void rename(SeenOp& op, StorageNumber from, StorageNumber to) {
    for (SeenTensor& tensor : op.tensors) {
      tensor.view.storage = tensor.view.storage == from ? to : tensor.view.storage;
    }
    for (auto* numbers : {&op.reads, &op.updates, &op.effects}) {
      std::ranges::replace(*numbers, from, to);
    }
  }

  static void take_rows(Window& view, int64_t first, int64_t rows) {
    view.sizes[0] = rows;
    view.offset += first * view.strides[0];
  }

  static SeenOp copy_of(const SeenOp& whole, int64_t rows) {
    SeenOp tile = whole;
    for (c10::IValue& argument : tile.arguments) {
      argument = own_copy(argument);
    }
    tile.time_ns = whole.time_ns * rows / whole.created.front().view.sizes[0];  // until it is measured
    return tile;
  }

  SeenOp nll_tile(const SeenOp& whole, int64_t first, int64_t rows) {
    SeenOp tile = copy_of(whole, rows);
    for (SeenTensor& tensor : tile.tensors) {
      if (tensor.place.position == kSelf || tensor.place.position == kTarget) {
        take_rows(tensor.view, first, rows);
      }
    }
    SeenResult& made = tile.created.front();
    made.view.sizes[0] = rows;
    SeenStorage storage = trace_[whole.creates.front()];
    storage.bytes = bytes_of(made.view);
    made.view.storage = static_cast<StorageNumber>(trace_.storages.size());
    trace_.storages.push_back(std::move(storage));
    tile.creates = {made.view.storage};
    request_for_result(tile)->bytes = bytes_of(made.view);
    return tile;
  }

  // Into the rows that it reads.
  static SeenOp softmax_tile(const SeenOp& whole, StorageNumber gradient, int64_t first, int64_t rows) {
    SeenOp tile = copy_of(whole, rows);
    tile.op = backward_into_op();
    tile.arguments.emplace_back(at::Tensor());
    tile.creates.clear();
    tile.created.clear();
    tile.allocations.clear();
    tile.tensors = {*argument(whole, kGradOutput), *argument(whole, kOutput)};
    tile.tensors[0].view.storage = gradient;
    tile.tensors[0].view.sizes[0] = rows;
    take_rows(tile.tensors[1].view, first, rows);
    tile.tensors.push_back(tile.tensors[1]);
    tile.tensors[2].place = {kOut, -1};
    tile.reads = {gradient};
    tile.updates = {tile.tensors[1].view.storage};
    return tile;
  }

  PartedTrace& parted_;
  Trace& trace_;
  std::vector<std::vector<size_t>> users_;  // by storage: ops in their order
  std::vector<LossBackward> found_;
};

}  // namespace

void take_loss_apart(PartedTrace& parted) { LossTiling(parted).run(); }

}  // namespace remat::detail
