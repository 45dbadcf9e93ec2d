// SPDX-License-Identifier: Apache-2.0
#include "remat/libtorch/allocator.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <utility>
#include <vector>

namespace remat::detail {
namespace {

thread_local AllocationListener* listener = nullptr;

using Ranges = std::vector<std::pair<const char*, const char*>>;

// Read at every free of the process, changed when an arena comes or goes. Lists that were replaced
// are kept: a reader on another thread may still be in one.
std::atomic<const Ranges*> ranges{nullptr};

bool in_some_range(const void* address) {
  const Ranges* known = ranges.load(std::memory_order_acquire);
  return known != nullptr && std::ranges::any_of(*known, [address](const auto& range) {
    return address >= range.first && address < range.second;
  });
}

template <typename Change>
void change_ranges(const Change& change) {
  static std::mutex& mutex = *new std::mutex;
  static auto& replaced = *new std::vector<const Ranges*>;
  const std::lock_guard lock(mutex);
  const Ranges* before = ranges.load();
  auto* after = before != nullptr ? new Ranges(*before) : new Ranges();
  change(*after);
  ranges.store(after, std::memory_order_release);
  replaced.push_back(before);
}

c10::Allocator* base = nullptr;

void release(void* address) {
  if (address == nullptr) {
    return;
  }
  if (listener != nullptr) {
    listener->freed(address);
  }
  if (!in_some_range(address)) {
    base->raw_deallocate(address);
  }
}

class ListeningAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    void* address = nullptr;
    if (listener != nullptr && bytes > 0) {
      address = listener->answer(bytes);
      if (address == nullptr) {
        address = base->raw_allocate(bytes);
        listener->allocated(address, bytes);
      }
    } else {
      address = base->raw_allocate(bytes);
    }
    return {address, address, &release, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }
};

void install() {
  static const bool installed = [] {
    base = c10::GetCPUAllocator();
    // Above whatever a program installed by its own hand: that one stays below, as `base`.
    c10::SetCPUAllocator(new ListeningAllocator, /*priority=*/255);
    return true;
  }();
  (void)installed;
}

}  // namespace

ListenGuard::ListenGuard(AllocationListener* mine) : previous_(listener) {
  install();
  listener = mine;
}

ListenGuard::~ListenGuard() { listener = previous_; }

MemoryRange::MemoryRange(void* begin, size_t bytes) : begin_(static_cast<const char*>(begin)) {
  install();
  change_ranges([&](Ranges& all) { all.emplace_back(begin_, begin_ + bytes); });
}

MemoryRange::~MemoryRange() {
  change_ranges([&](Ranges& all) {
    std::erase_if(all, [&](const auto& range) { return range.first == begin_; });
  });
}

}  // namespace remat::detail
