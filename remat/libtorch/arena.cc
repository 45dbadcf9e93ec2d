// SPDX-License-Identifier: Apache-2.0
#include "remat/libtorch/arena.h"

#include <c10/core/CPUAllocator.h>

#include <algorithm>

#include "remat/core/units.h"
#include "remat/libtorch/followed_tensor.h"
#include "remat/libtorch/tensor_view.h"

namespace remat::detail {
namespace {

constexpr int64_t kWorthDiscarding = MiB;  // pages that are given back must be zeroed when used again

}  // namespace

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
  struct Held {
    c10::intrusive_ptr<c10::StorageImpl> storage;
    const char* begin;
    int64_t bytes;
  };
  std::vector<Held> held;
  int64_t moved_bytes = 0;
  for (const auto& weak : lent_) {
    auto storage = weak.lock();
    if (storage != nullptr && storage->nbytes() > 0) {
      const auto* begin = static_cast<const char*>(storage->data());
      const auto bytes = static_cast<int64_t>(storage->nbytes());
      moved_bytes += bytes;
      held.push_back({std::move(storage), begin, bytes});
    }
  }
  lent_.clear();
  // The copies need memory besides the arena: what lies around them goes back to the system first, and
  // each block after it was copied.
  const bool many = moved_bytes >= kWorthDiscarding;
  std::ranges::sort(held, {}, &Held::begin);
  char* after = memory_;
  const auto discard_to = [&](const char* end) {
    if (many && end > after) {
      device_.discard(after, end - after);
    }
  };
  for (const Held& each : held) {
    discard_to(each.begin);
    after = const_cast<char*>(each.begin) + each.bytes;
  }
  discard_to(memory_ + touched_bytes_);
  for (const Held& each : held) {
    c10::DataPtr own = c10::GetCPUAllocator()->allocate(static_cast<size_t>(each.bytes));
    device_.copy(own.get(), each.begin, each.bytes);
    each.storage->set_data_ptr_noswap(std::move(own));
    if (many) {
      device_.discard(const_cast<char*>(each.begin), each.bytes);
    }
  }
  return moved_bytes;
}

}  // namespace remat::detail
