// SPDX-License-Identifier: Apache-2.0
#include "remat/libtorch/reuse_check.h"

#include <algorithm>
#include <cstring>

#include "remat/core/error.h"
#include "remat/libtorch/arena.h"
#include "remat/libtorch/intercept.h"
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

// Which request of the op its created storage `result` answers to.
size_t request_of(const SeenOp& op, size_t result) {
  const auto& requests = op.allocations;
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
                 ? make_tensor(window_of(tensor), place)
                 : tensor;
    });
  }
  OneAnswer answer(request_of(op, result), place.mutable_data());
  const ListenGuard listen(&answer);
  run_op(op.op, op.keys, stack);
  return stack;
}

}  // namespace

void check_reuse(const SeenOp& op, const Trace& trace, Values arguments, Values results) {
  for (const auto& [result, source] : reuse_pairs(op, trace)) {
    const SeenStorage& original = trace[source];
    const auto impl = original.impl.lock();
    const auto created = static_cast<size_t>(std::ranges::find(op.creates, result) - op.creates.begin());
    Arena arena(cpu_device(), original.bytes);  // memory that the allocator does not free
    cpu_device().copy(arena.at(0), impl->data(), original.bytes);
    const torch::jit::Stack again =
        run_over_source(op, arguments, impl.get(), borrow(arena.at(0), original.bytes), created);
    for (size_t i = 0; i < op.creates.size(); ++i) {
      const c10::Storage& expected = tensor_at(results, op.created[i].place).storage();
      const c10::Storage& found = tensor_at(again, op.created[i].place).storage();
      const bool in_place = i != created || found.data() == arena.at(0);
      if (!in_place || std::memcmp(found.data(), expected.data(), expected.nbytes()) != 0) {
        throw Error(concat("[capture] ", op.op.schema().name(), in_layer(op.scope),
                           in_place ? " computes something else" : " asks for memory differently",
                           " when its result takes the place of an input; correct reuse.cc"));
      }
    }
  }
}

}  // namespace remat::detail
