// SPDX-License-Identifier: Apache-2.0
#include "remat/libtorch/packed_values.h"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <string>

#include "remat/core/moves.h"
#include "remat/libtorch/packed_readers.h"
#include "remat/libtorch/packing_rates.h"

namespace remat::detail {
namespace {

using c10::ScalarType;
using Kernel = PackedReader::Kernel;

constexpr std::array<std::string_view, 8> kRuleNames = {
    "two_values", "bools", "above", "between", "narrow", "pool_offsets", "from_bfloat16", "from_half"};

// An op that reads a storage, and the argument that does.
struct Use {
  OpId op{};
  const TensorArgument* argument = nullptr;
};

const std::string& name_of(const TapeOp& tape) { return tape.op.schema().name(); }

bool one_of(const std::string& name, std::initializer_list<std::string_view> names) {
  return std::ranges::find(names, name) != names.end();
}

const TensorArgument* argument_at(const TapeOp& tape, int32_t position) {
  const auto found = std::ranges::find_if(tape.tensors, [&](const TensorArgument& each) {
    return each.place.position == position;
  });
  return found == tape.tensors.end() ? nullptr : &*found;
}

// Whether every element of the storage is in the window, once.
bool is_whole(const Window& window, int64_t bytes) {
  std::vector<size_t> by_stride(window.sizes.size());
  for (size_t i = 0; i < by_stride.size(); ++i) by_stride[i] = i;
  std::ranges::sort(by_stride, {}, [&](size_t i) { return window.strides[i]; });
  int64_t elements = 1;
  for (const size_t i : by_stride) {
    if (window.sizes[i] != 1 && window.strides[i] != elements) return false;
    elements *= window.sizes[i];
  }
  return window.offset == 0 && !window.conjugated && !window.negated &&
         elements * static_cast<int64_t>(c10::elementSize(window.dtype)) == bytes;
}

bool same_layout(const Window& a, const Window& b) {
  return a.dtype == b.dtype && a.sizes == b.sizes && a.strides == b.strides && a.offset == b.offset;
}

std::optional<double> number(const TapeOp& tape, size_t position) {
  const c10::IValue& value = tape.arguments[position];
  if (value.isDouble()) return value.toDouble();
  if (value.isInt()) return static_cast<double>(value.toInt());
  return std::nullopt;
}

// The least number of bytes for numbers from 0 up to, not including, `end`.
int64_t bytes_below(int64_t end) {
  for (const int64_t bytes : {1, 2}) {
    if (end <= int64_t{1} << (8 * bytes)) return bytes;
  }
  return 4;
}

class Finder {
 public:
  Finder(Recording& recording, int64_t least_bytes)
      : recording_(recording),
        graph_(recording.graph),
        least_bytes_(least_bytes),
        uses_(graph_.storages.size()),
        last_read_(graph_.storages.size(), -1) {
    for (const Op& op : graph_.ops) {
      for (const Value& value : op.reads) {
        last_read_[index(value.storage)] = std::max(last_read_[index(value.storage)], value.version);
      }
    }
    for (size_t i = 0; i < recording.tape.size(); ++i) {
      for (const TensorArgument& argument : recording.tape[i].tensors) {
        uses_[index(argument.view.storage)].push_back({static_cast<OpId>(i), &argument});
      }
    }
  }

  void find() {
    for (size_t s = graph_.external_count; s < graph_.storages.size(); ++s) {
      const StorageId id = static_cast<StorageId>(s);
      // A packed form is one of the last version.
      if (graph_.storages[s].bytes < least_bytes_ || last_read_[s] != graph_.last_version(id)) continue;
      PackedValue value;
      PackedForm form;
      form.storage = id;
      if (!choose(id, value.format) || !can_pack(value.format)) continue;
      find_readers(id, value, form);
      form.rule = name(value.format.rule);
      form.bytes = packed_bytes(value.format);
      const bool unpackable = can_unpack(value.format.rule);
      if (form.bytes >= graph_.storages[s].bytes || (!unpackable && form.readers.empty())) continue;
      form.pack_ns = expected_pack_ns(value.format);
      if (unpackable) form.unpack_ns = expected_unpack_ns(value.format);
      graph_.packed_forms.push_back(std::move(form));
      recording_.packed_values.push_back(std::move(value));
    }
  }

 private:
  const TapeOp& tape(OpId op) const { return recording_.tape[index(op)]; }

  // The rule for a storage and what it needs to know. False if there is none.
  bool choose(StorageId id, PackFormat& format) const {
    const std::vector<Use>& uses = uses_[index(id)];
    const Storage& storage = graph_.storage(id);
    const ScalarType dtype = uses.front().argument->view.dtype;
    const auto item = static_cast<int64_t>(c10::elementSize(dtype));
    const bool one_type = std::ranges::all_of(
        uses, [&](const Use& use) { return use.argument->view.dtype == dtype; });
    if (!one_type || storage.bytes % item != 0) return false;
    format.dtype = dtype;
    format.elements = storage.bytes / item;
    if (dtype == ScalarType::Bool) {
      format.rule = PackRule::bools;
      return true;
    }
    if (c10::isFloatingType(dtype)) {
      return has_two_values(id, format) || came_from_less(id, format) || is_compared(id, format);
    }
    return c10::isIntegralType(dtype, false) && (is_pooled(id, format) || is_below(id, format));
  }

  // Random bits, and afterwards nothing but numbers that scale them.
  bool has_two_values(StorageId id, PackFormat& format) const {
    const Storage& storage = graph_.storage(id);
    bool drawn = one_of(name_of(tape(*storage.creator)), {"aten::bernoulli"});
    bool as_number = false;
    if (name_of(tape(*storage.creator)) == "aten::_to_copy") {
      const TensorArgument* from = argument_at(tape(*storage.creator), 0);
      as_number = from != nullptr && from->view.dtype == ScalarType::Bool;
    }
    for (const OpId changer : storage.changers) {
      const TapeOp& change = tape(changer);
      if (name_of(change) == "aten::bernoulli_") {
        drawn = true;
      } else if (!one_of(name_of(change), {"aten::div_", "aten::mul_"}) || argument_at(change, 1)) {
        return false;
      }
    }
    format.rule = PackRule::two_values;
    return drawn || as_number;
  }

  bool came_from_less(StorageId id, PackFormat& format) const {
    const Storage& storage = graph_.storage(id);
    const TapeOp& creator = tape(*storage.creator);
    if (!storage.changers.empty() || format.dtype != ScalarType::Float ||
        name_of(creator) != "aten::_to_copy") {
      return false;
    }
    const TensorArgument* from = argument_at(creator, 0);
    if (from == nullptr) return false;
    format.rule = from->view.dtype == ScalarType::Half ? PackRule::from_half : PackRule::from_bfloat16;
    return one_of(c10::toString(from->view.dtype), {"Half", "BFloat16"});
  }

  // An op that reads it only compares it with numbers.
  bool is_compared(StorageId id, PackFormat& format) const {
    for (const Use& use : uses_[index(id)]) {
      if (const std::optional<PackFormat> compared = comparison(use, format)) {
        format = *compared;
        return true;
      }
    }
    return false;
  }

  std::optional<PackFormat> comparison(const Use& use, PackFormat format) const {
    const TapeOp& op = tape(use.op);
    if (use.argument->place.position != 1) return std::nullopt;
    if (name_of(op) == "aten::threshold_backward" && number(op, 2)) {
      format.rule = PackRule::above;
      format.low = *number(op, 2);
      return format;
    }
    if (name_of(op) == "aten::leaky_relu_backward") {
      format.rule = PackRule::above;
      format.nan_is_above = false;
      return format;
    }
    if (name_of(op) == "aten::hardtanh_backward" && number(op, 2) && number(op, 3)) {
      format.rule = PackRule::between;
      format.low = *number(op, 2);
      format.high = *number(op, 3);
      return format;
    }
    return std::nullopt;
  }

  // Of max pooling, the second result.
  bool is_pooled(StorageId id, PackFormat& format) const {
    const Storage& storage = graph_.storage(id);
    const TapeOp& op = tape(*storage.creator);
    const std::vector<StorageId>& creates = graph_.op(*storage.creator).creates;
    const bool adaptive = one_of(name_of(op), {"aten::adaptive_max_pool2d", "aten::adaptive_max_pool3d"});
    const bool pools = adaptive || one_of(name_of(op), {"aten::max_pool2d_with_indices",
                                                        "aten::max_pool3d_with_indices"});
    if (!pools || creates.size() != 2 || creates[1] != id || !storage.changers.empty()) return false;
    const TensorArgument* input = argument_at(op, 0);
    const Window* indices = nullptr;
    for (const Use& use : uses_[index(id)]) indices = &use.argument->view;
    const size_t dimensions = name_of(op).find("3d") != std::string::npos ? 3 : 2;
    if (input == nullptr || input->view.sizes.size() != dimensions + 2 ||
        indices->sizes.size() != dimensions + 2 || !is_whole(*indices, storage.bytes)) {
      return false;
    }
    format.rule = PackRule::pool_offsets;
    format.pool.adaptive = adaptive;
    const bool channels_last = indices->strides[1] == 1 && indices->sizes[1] != 1;
    format.pool.channels_last = channels_last ? indices->sizes[1] : 1;
    for (size_t d = 0; d < dimensions; ++d) {
      PoolDimension& dimension = format.pool.dimensions[3 - dimensions + d];
      dimension.in = input->view.sizes[2 + d];
      dimension.out = indices->sizes[2 + d];
      if (adaptive) {
        // The longest window: where neither end is at a whole multiple.
        dimension.kernel = (dimension.in + dimension.out - 1) / dimension.out + 1;
        continue;
      }
      const auto at = [&](size_t argument, int64_t by_default) {
        const auto list = op.arguments[argument].toIntVector();
        return list.empty() ? by_default : list.size() == 1 ? list[0] : list[d];
      };
      dimension.kernel = at(1, 1);
      dimension.stride = at(2, dimension.kernel);
      dimension.padding = at(3, 0);
      dimension.dilation = at(4, 1);
    }
    return true;
  }

  // Indices into a dimension of known size: of the op that made them, or of one that reads them.
  bool is_below(StorageId id, PackFormat& format) const {
    std::optional<int64_t> end = made_below(id);
    for (const Use& use : uses_[index(id)]) {
      if (const std::optional<int64_t> read = read_below(use)) {
        end = std::min(end.value_or(std::numeric_limits<int64_t>::max()), *read);
      }
    }
    if (!end) return false;
    format.rule = PackRule::narrow;
    format.narrow_bytes = bytes_below(*end);
    return format.narrow_bytes < static_cast<int64_t>(c10::elementSize(format.dtype));
  }

  std::optional<int64_t> made_below(StorageId id) const {
    const Storage& storage = graph_.storage(id);
    const TapeOp& op = tape(*storage.creator);
    const TensorArgument* input = argument_at(op, 0);
    if (input == nullptr || !storage.changers.empty()) return std::nullopt;
    if (!one_of(name_of(op), {"aten::sort", "aten::topk", "aten::argsort", "aten::argmax", "aten::argmin",
                              "aten::max", "aten::min", "aten::kthvalue", "aten::median", "aten::mode",
                              "aten::cummax", "aten::cummin", "aten::max_pool2d_with_indices",
                              "aten::max_pool3d_with_indices", "aten::adaptive_max_pool2d",
                              "aten::adaptive_max_pool3d", "aten::fractional_max_pool2d"})) {
      return std::nullopt;
    }
    int64_t elements = 1;  // no index is beyond the whole
    for (const int64_t size : input->view.sizes) elements *= size;
    return elements;
  }

  std::optional<int64_t> read_below(const Use& use) const {
    const TapeOp& op = tape(use.op);
    const bool indexes_rows = name_of(op) == "aten::embedding" && use.argument->place.position == 1;
    const bool is_target = one_of(name_of(op), {"aten::nll_loss_forward", "aten::nll_loss2d_forward"}) &&
                           use.argument->place.position == 1;
    const TensorArgument* table = argument_at(op, 0);
    if (table == nullptr || table->view.sizes.size() < 1) return std::nullopt;
    if (indexes_rows) return table->view.sizes[0];
    if (is_target && table->view.sizes.size() > 1) return table->view.sizes[1];
    return std::nullopt;
  }

  void find_readers(StorageId id, PackedValue& value, PackedForm& form) const {
    const Value last{id, graph_.last_version(id)};
    for (const Use& use : uses_[index(id)]) {
      const Op& op = graph_.op(use.op);
      const bool only_creates = op.updates.empty() && op.effects.empty() && !op.random && !op.once &&
                                op.creates.size() == 1 && op.workspace_bytes == 0;
      if (!only_creates || std::ranges::count(op.reads, last) != 1) continue;
      const std::optional<PackedReader> reader = reader_of(use, value.format);
      if (!reader) continue;
      value.readers.push_back(*reader);
      form.readers.push_back(use.op);
    }
  }

  std::optional<PackedReader> reader_of(const Use& use, const PackFormat& format) const {
    const TapeOp& op = tape(use.op);
    const int32_t position = use.argument->place.position;
    const bool is_mul = name_of(op) == "aten::mul" && format.rule == PackRule::two_values;
    const int32_t other = is_mul && position == 0 ? 1 : 0;
    const TensorArgument* argument = argument_at(op, other);
    if (argument == nullptr || position == other || argument->view.storage == use.argument->view.storage ||
        graph_.storage(argument->view.storage).external() ||
        !same_layout(argument->view, use.argument->view) ||
        !is_whole(use.argument->view, graph_.storage(use.argument->view.storage).bytes)) {
      return std::nullopt;
    }
    PackedReader reader{.kernel = Kernel::mul, .packed = use.argument->place, .other = argument->place};
    if (is_mul) return position <= 1 && op.tensors.size() == 2 ? std::optional(reader) : std::nullopt;
    const std::optional<PackFormat> compared =
        comparison(use, {.dtype = format.dtype, .elements = format.elements});
    if (!compared || *compared != format) return std::nullopt;
    if (name_of(op) == "aten::threshold_backward") {
      reader.kernel = Kernel::threshold_backward;
    } else if (name_of(op) == "aten::hardtanh_backward") {
      reader.kernel = Kernel::hardtanh_backward;
    } else {
      reader.kernel = Kernel::leaky_relu_backward;
      const std::optional<double> slope = number(op, 2);
      if (!slope) return std::nullopt;
      reader.slope = *slope;
    }
    return reader;
  }

  Recording& recording_;
  Graph& graph_;
  int64_t least_bytes_;
  std::vector<std::vector<Use>> uses_;  // by storage
  std::vector<int32_t> last_read_;      // by storage: the last version that is read
};

}  // namespace

void find_packed_values(Recording& recording, int64_t least_bytes) {
  Finder(recording, least_bytes).find();
  add_moves(recording.graph);
}

std::string_view name(PackRule rule) { return kRuleNames[static_cast<size_t>(rule)]; }

bool compares_as_packed(const TapeOp& op, const PackedReader& reader, const PackFormat& format) {
  switch (reader.kernel) {
    case Kernel::threshold_backward: return number(op, 2) == format.low;
    case Kernel::hardtanh_backward: return number(op, 2) == format.low && number(op, 3) == format.high;
    case Kernel::leaky_relu_backward: return number(op, 2) == reader.slope;
    case Kernel::mul: break;
  }
  return true;
}

void run_packed_reader(const PackedReader& reader, const PackFormat& format, const void* packed,
                       const void* other, void* out) {
  switch (reader.kernel) {
    case Kernel::threshold_backward: return packed_threshold_backward(format, packed, other, out);
    case Kernel::hardtanh_backward: return packed_hardtanh_backward(format, packed, other, out);
    case Kernel::leaky_relu_backward:
      return packed_leaky_relu_backward(format, packed, other, reader.slope, out);
    case Kernel::mul:
      return packed_mul(format, packed, other, reader.packed.position == 0, out);
  }
}

}  // namespace remat::detail
