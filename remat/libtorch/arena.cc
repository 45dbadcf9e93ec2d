// SPDX-License-Identifier: Apache-2.0
#include "remat/libtorch/arena.h"

#include <c10/core/CPUAllocator.h>

#include "remat/libtorch/followed_tensor.h"
#include "remat/libtorch/tensor_view.h"

namespace remat::detail {

Arena::Arena(Device& device, int64_t bytes)
    : device_(device), memory_(static_cast<char*>(device.reserve(bytes))), bytes_(bytes) {
  if (memory_ != nullptr) {
    range_.emplace(memory_, static_cast<size_t>(bytes));
  }
}

Arena::~Arena() {
  reclaim();
  range_.reset();
  device_.release(memory_, bytes_);
}

c10::Storage Arena::lend(int64_t offset, int64_t bytes) {
  c10::Storage storage = borrow(at(offset), bytes);
  lent_.emplace_back(c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(
      storage.unsafeGetStorageImpl()));
  return storage;
}

void Arena::lend(int64_t offset, const c10::intrusive_ptr<c10::StorageImpl>& storage) {
  give_bytes(*storage, c10::DataPtr(at(offset), c10::Device(c10::kCPU)));
  lent_.emplace_back(storage);
}

void Arena::use_only(int64_t bytes) {
  if (touched_bytes_ > bytes) {
    device_.discard(memory_ + bytes, touched_bytes_ - bytes);
  }
  touched_bytes_ = bytes;
}

int64_t Arena::reclaim() {
  int64_t moved_bytes = 0;
  for (const auto& weak : lent_) {
    const c10::intrusive_ptr<c10::StorageImpl> storage = weak.lock();
    if (storage == nullptr || storage->nbytes() == 0) {
      continue;
    }
    const auto bytes = static_cast<int64_t>(storage->nbytes());
    c10::DataPtr own = c10::GetCPUAllocator()->allocate(storage->nbytes());
    device_.copy(own.get(), storage->data(), bytes);
    storage->set_data_ptr_noswap(std::move(own));
    moved_bytes += bytes;
  }
  lent_.clear();
  return moved_bytes;
}

}  // namespace remat::detail
