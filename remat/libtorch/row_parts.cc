// SPDX-License-Identifier: Apache-2.0
#include "remat/libtorch/row_parts.h"

#include <algorithm>
#include <numeric>
#include <unordered_map>
#include <utility>

#include "remat/libtorch/op_traits.h"
#include "remat/libtorch/op_values.h"
#include "remat/libtorch/row_windows.h"

namespace remat::detail {
namespace {

using Rows = OpTraits::Rows;

// Libraries of kernels multiply a matrix of a few rows another way than a large one.
constexpr int64_t kLeastRows = 128;
// What vectorised loops leave over, a scalar loop computes, which the compiler may have made to multiply
// and add with one rounding. So no thread's share may leave anything over, neither of the whole nor of
// a tile. No loop of LibTorch takes more elements at once.
constexpr int64_t kElementsAtOnce = 64;
constexpr int64_t kLeastPerThread = 32768;  // LibTorch uses fewer threads below

// Scratch that holds no more than a number given as an argument (div(x, 3) makes a tensor of it).
constexpr int64_t kNumberBytes = 256;

// What is known about one op's rows.
struct RowOp {
  Rows rows = Rows::no;
  Window shape = {};  // of what it makes, or of what it writes
};

class Tiling {
 public:
  explicit Tiling(PartedTrace& parted)
      : parted_(parted), trace_(parted.trace), row_ops_(trace_.ops.size()),
        users_(trace_.storages.size()), chain_of_(trace_.ops.size()) {}

  void run() {
    for (size_t i = 0; i < trace_.ops.size(); ++i) {
      if (trace_.ops[i].computes()) {
        row_ops_[i] = rows_of(trace_.ops[i]);
        note_uses(i);
      }
    }
    join_chains();
    std::erase_if(chains_, [&](const std::vector<size_t>& chain) { return !can_be_tiled(chain); });
    if (!chains_.empty()) {
      emit();
    }
  }

 private:
  // ---- which ops are the same row by row

  RowOp rows_of(const SeenOp& op) const {
    const Rows rows = traits_of(op.op).rows;
    if (rows == Rows::no || op.kind != CallKind::op || op.random || op.once ||
        !op.effects.empty() || op.workspace_bytes > kNumberBytes || op.creates.size() > 1) {
      return {};
    }
    const Window* shape = nullptr;
    if (!op.creates.empty()) {
      shape = &op.created.front().view;
      const auto request = request_for_result(op);
      if (!is_plain(*shape) || bytes_of(*shape) != trace_[op.creates.front()].bytes ||
          request == op.allocations.end() || request->bytes != bytes_of(*shape)) {
        return {};
      }
    }
    for (const SeenTensor& tensor : op.tensors) {
      if (shape == nullptr && among(op.updates, tensor.view.storage)) {
        shape = &tensor.view;
      }
    }
    if (shape == nullptr || shape->sizes.size() < 2 || shape->sizes[0] < 2 ||
        !arguments_fit(op, rows, *shape)) {
      return {};
    }
    return {rows, *shape};
  }

  static bool arguments_fit(const SeenOp& op, Rows rows, const Window& shape) {
    switch (rows) {
      case Rows::of_all:
        return std::ranges::all_of(op.tensors, [&](const SeenTensor& each) {
          return each.view.sizes == shape.sizes ||
                 (elements(each.view) == 1 && !among(op.updates, each.view.storage));
        });
      case Rows::of_first:
        return op.tensors.size() == 2 && op.tensors[0].place.position == 0 &&
               op.tensors[0].view.sizes.size() == 2 && op.updates.empty() &&
               op.tensors[0].view.storage != op.tensors[1].view.storage;
      case Rows::of_embedding:
        return op.tensors.size() == 2 && is_plain_part(op.tensors[0].view) &&
               is_plain_part(op.tensors[1].view) && op.tensors[1].view.dtype == at::kLong &&
               (shape.dtype == at::kFloat || shape.dtype == at::kDouble) &&
               op.tensors[0].view.dtype == shape.dtype && !op.arguments[4].toBool();
      case Rows::no:
        break;
    }
    return false;
  }

  bool is_row_argument(size_t op, const SeenTensor& tensor) const {
    return row_ops_[op].rows == Rows::of_all     ? tensor.view.sizes == row_ops_[op].shape.sizes
           : row_ops_[op].rows == Rows::of_first ? tensor.place.position == 0
                                                 : false;
  }

  // ---- chains

  void note_uses(size_t i) {
    const SeenOp& op = trace_.ops[i];
    for (const auto* numbers : {&op.reads, &op.updates, &op.effects, &op.creates}) {
      for (const StorageNumber number : *numbers) {
        users_[index(number)].push_back(i);
      }
    }
  }

  // Made inside of the step, seen by ops of one chain only, always as a whole.
  bool is_private(size_t number) const {
    const SeenStorage& storage = trace_.storages[number];
    if (storage.external || storage.output || storage.before_host_write ||
        storage.host_writes_later || storage.borrowed || storage.bytes < kLargeBytes ||
        users_[number].size() < 2) {
      return false;
    }
    const RowOp& creator = row_ops_[users_[number].front()];
    return std::ranges::all_of(users_[number], [&](size_t user) {
      const SeenOp& op = trace_.ops[user];
      if (row_ops_[user].rows == Rows::no || row_ops_[user].shape.sizes != creator.shape.sizes) {
        return false;
      }
      return std::ranges::all_of(op.tensors, [&](const SeenTensor& each) {
        return index(each.view.storage) != number ||
               (row_ops_[user].rows == Rows::of_all && is_plain(each.view) &&
                each.view.sizes == creator.shape.sizes);
      });
    });
  }

  void join_chains() {
    std::vector<size_t> leader(trace_.ops.size());
    std::iota(leader.begin(), leader.end(), size_t{0});
    const auto find = [&](size_t op) {
      while (leader[op] != op) {
        op = leader[op] = leader[leader[op]];
      }
      return op;
    };
    private_.resize(trace_.storages.size());
    std::vector<bool> joined(trace_.ops.size(), false);
    for (size_t number = 0; number < trace_.storages.size(); ++number) {
      private_[number] = is_private(number);
      for (size_t i = 0; private_[number] && i < users_[number].size(); ++i) {
        joined[users_[number][i]] = true;
        leader[find(users_[number][i])] = find(users_[number].front());
      }
    }
    std::vector<std::vector<size_t>> chains(trace_.ops.size());
    for (size_t i = 0; i < trace_.ops.size(); ++i) {
      if (joined[i]) {
        chains[find(i)].push_back(i);
      }
    }
    for (std::vector<size_t>& chain : chains) {
      if (std::ranges::any_of(chain, [&](size_t op) {
            return trace_.ops[op].phase == Phase::optimizer;
          })) {
        chains_.push_back(std::move(chain));
      }
    }
  }

  int64_t rows_per_tile(const std::vector<size_t>& chain) const {
    const Window& shape = row_ops_[chain.front()].shape;
    const int64_t count = (bytes_of(shape) + kTileBytes - 1) / kTileBytes;
    const int64_t rows = (shape.sizes[0] + count - 1) / count;
    const int64_t even = even_elements() / std::gcd(even_elements(), row_elements(shape));
    return (rows + even - 1) / even * even;
  }

  static int64_t row_elements(const Window& shape) { return elements(shape) / shape.sizes[0]; }
  int64_t even_elements() const { return kElementsAtOnce * std::max(trace_.threads, 1); }

  // Every op may wait for the last one, and what one tile writes no other tile reads.
  bool can_be_tiled(const std::vector<size_t>& chain) const {
    const int64_t rows = rows_per_tile(chain);
    const Window& shape = row_ops_[chain.front()].shape;
    const int64_t rest = shape.sizes[0] % rows;
    const int64_t least = std::max(
        kLeastRows, kLeastPerThread * std::max(trace_.threads, 1) / row_elements(shape));
    if (elements(shape) % even_elements() != 0 || rows < least || (rest != 0 && rest < least)) {
      return false;
    }
    for (const size_t i : chain) {
      const SeenOp& op = trace_.ops[i];
      for (size_t between = i + 1; between < chain.back(); ++between) {
        if (trace_.ops[between].computes() && !std::ranges::binary_search(chain, between) &&
            disturb(op, trace_.ops[between])) {
          return false;
        }
      }
      for (const StorageNumber written : op.updates) {
        if (!private_[index(written)] && !same_rows_everywhere(chain, written)) {
          return false;
        }
      }
    }
    return true;
  }

  bool same_rows_everywhere(const std::vector<size_t>& chain, StorageNumber number) const {
    const Window* seen = nullptr;
    for (const size_t i : chain) {
      for (const SeenTensor& tensor : trace_.ops[i].tensors) {
        if (tensor.view.storage != number) {
          continue;
        }
        const Window& view = tensor.view;
        if (!is_row_argument(i, tensor) || !is_plain_part(view) ||
            (seen != nullptr && !(*seen == view))) {
          return false;
        }
        seen = &view;
      }
    }
    return true;
  }

  // ---- tiles

  void emit() {
    for (size_t i = 0; i < chains_.size(); ++i) {
      for (const size_t op : chains_[i]) {
        chain_of_[op] = i + 1;
      }
    }
    std::vector<SeenOp> ops = std::exchange(trace_.ops, {});
    const std::vector<OpPart> parts = std::exchange(parted_.parts, {});
    for (size_t i = 0; i < ops.size(); ++i) {
      if (chain_of_[i] == 0) {
        trace_.ops.push_back(std::move(ops[i]));
        parted_.parts.push_back(parts[i]);
        continue;
      }
      const std::vector<size_t>& chain = chains_[chain_of_[i] - 1];
      if (i != chain.back()) {
        continue;
      }
      const int64_t all_rows = row_ops_[chain.front()].shape.sizes[0];
      const int64_t rows = rows_per_tile(chain);
      for (int64_t first = 0; first < all_rows; first += rows) {
        tile_storages_.clear();
        for (const size_t op : chain) {
          trace_.ops.push_back(tile_of(ops[op], op, first, std::min(rows, all_rows - first)));
          parted_.parts.push_back(parts[op]);
          parted_.parts.back().is_tile = true;
        }
      }
    }
  }

  SeenOp tile_of(const SeenOp& whole, size_t at, int64_t first, int64_t rows) {
    SeenOp tile = whole;
    tile.tensors.clear();
    for (c10::IValue& argument : tile.arguments) {
      argument = own_copy(argument);
    }
    if (row_ops_[at].rows == Rows::of_embedding) {
      tile.op = embedding_rows_op();
      tile.arguments[4] = first;
      tile.arguments.emplace_back(rows);
    }
    if (!whole.creates.empty()) {
      SeenResult made = whole.created.front();
      made.view.sizes[0] = rows;
      const int64_t bytes = bytes_of(made.view);
      made.view.storage = tile_storage(whole.creates.front(), bytes);
      tile.creates = {made.view.storage};
      tile.created = {made};
      request_for_result(tile)->bytes = bytes;
    }
    for (SeenTensor tensor : whole.tensors) {
      if (is_row_argument(at, tensor)) {
        tensor.view.sizes[0] = rows;
        if (private_[index(tensor.view.storage)]) {
          tensor.view.storage = tile_storages_.at(index(tensor.view.storage));
        } else {
          tensor.view.offset += first * tensor.view.strides[0];
        }
      }
      tile.tensors.push_back(std::move(tensor));
    }
    tile.reads = in_tile(whole.reads);
    tile.updates = in_tile(whole.updates);
    tile.time_ns = whole.time_ns * rows / row_ops_[at].shape.sizes[0];  // until it is measured
    return tile;
  }

  StorageNumber tile_storage(StorageNumber whole, int64_t bytes) {
    const auto number = static_cast<StorageNumber>(trace_.storages.size());
    SeenStorage storage = trace_[whole];
    storage.bytes = bytes;
    trace_.storages.push_back(std::move(storage));
    tile_storages_[index(whole)] = number;
    return number;
  }

  std::vector<StorageNumber> in_tile(std::vector<StorageNumber> numbers) const {
    for (StorageNumber& number : numbers) {
      const auto found = tile_storages_.find(index(number));
      number = found != tile_storages_.end() ? found->second : number;
    }
    return numbers;
  }

  PartedTrace& parted_;
  Trace& trace_;
  std::vector<RowOp> row_ops_;              // by op
  std::vector<std::vector<size_t>> users_;  // by storage: ops in their order, the creator first
  std::vector<bool> private_;               // by storage
  std::vector<std::vector<size_t>> chains_;
  std::vector<size_t> chain_of_;  // by op: its chain, counted from 1; 0: none
  std::unordered_map<size_t, StorageNumber> tile_storages_;  // of the tile being made, by storage
};

}  // namespace

void take_rows_apart(PartedTrace& parted) { Tiling(parted).run(); }

}  // namespace remat::detail
