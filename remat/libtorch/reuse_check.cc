// SPDX-License-Identifier: Apache-2.0
#include "remat/libtorch/reuse_check.h"

#include <algorithm>
#include <cstring>

#include "remat/core/error.h"
#include "remat/libtorch/arena.h"
#include "remat/libtorch/op_traits.h"
#include "remat/libtorch/reuse.h"
#include "remat/libtorch/tensor_view.h"

namespace remat::detail {
namespace {

// Answers one request of an op, the `number`-th, with a given address.
class OneAnswer final : public AllocationListener {
 public:
  OneAnswer(size_t number, void* address) : number_(number), address_(address) {}
  void* answer(size_t) override { return seen_++ == number_ ? address_ : nullptr; }
  void allocated(void*, size_t) override {}
  void freed(void*) override {}

 private:
  size_t number_;
  void* address_;
  size_t seen_ = 0;
};

const c10::Storage& storage_at(c10::ArrayRef<c10::IValue> values, TensorPlace place) {
  const c10::IValue& value = values[static_cast<size_t>(place.position)];
  return place.element < 0
             ? value.toTensor().storage()
             : value.toListRef()[static_cast<size_t>(place.element)].toTensor().storage();
}

// Which request of the op its created storage `result` answers to.
size_t request_of(const SeenOp& op, size_t result) {
  const auto& requests = op.call.allocations;
  const auto found =
      std::ranges::find(requests, static_cast<int32_t>(result), &Allocation::result);
  return static_cast<size_t>(found - requests.begin());
}

torch::jit::Stack run_over_source(const SeenOp& op, c10::ArrayRef<c10::IValue> arguments,
                                  const c10::StorageImpl* source, const c10::Storage& place,
                                  size_t result) {
  torch::jit::Stack stack(arguments.begin(), arguments.end());
  for (c10::IValue& value : stack) {
    map_tensors(value, [&](const at::Tensor& tensor) {
      return tensor.storage().unsafeGetStorageImpl() == source
                 ? make_tensor(make_view(tensor, StorageId{}), place)
                 : tensor;
    });
  }
  OneAnswer answer(request_of(op, result), place.mutable_data());
  const ListenGuard listen(&answer);
  run_op(op.call.op, op.call.keys, stack);
  return stack;
}

}  // namespace

void check_reuse(const SeenOp& op, const std::vector<SeenStorage>& storages,
                 c10::ArrayRef<c10::IValue> arguments, c10::ArrayRef<c10::IValue> results) {
  for (const auto& [result, source] : reuse_pairs(op, storages)) {
    const SeenStorage& original = storages[static_cast<size_t>(source)];
    const auto impl = original.impl.lock();
    const auto created = static_cast<size_t>(std::ranges::find(op.creates, result) - op.creates.begin());
    Arena arena(cpu_device(), original.bytes);  // memory that the allocator does not free
    cpu_device().copy(arena.at(0), impl->data(), original.bytes);
    const torch::jit::Stack again =
        run_over_source(op, arguments, impl.get(), borrow(arena.at(0), original.bytes), created);
    for (size_t i = 0; i < op.creates.size(); ++i) {
      const c10::Storage& expected = storage_at(results, op.call.results[i]);
      const c10::Storage& found = storage_at(again, op.call.results[i]);
      const bool in_place = i != created || found.data() == arena.at(0);
      if (!in_place || std::memcmp(found.data(), expected.data(), expected.nbytes()) != 0) {
        throw Error(concat("[capture] ", op.call.op.schema().name(), in_layer(op.scope),
                           in_place ? " computes something else" : " asks for memory differently",
                           " when its result takes the place of an input; correct reuse.cc"));
      }
    }
  }
}

}  // namespace remat::detail
