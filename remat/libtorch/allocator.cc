// SPDX-License-Identifier: Apache-2.0
#include "remat/libtorch/allocator.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <unordered_set>
#include <vector>

namespace remat::detail {
namespace {

thread_local AllocationListener* listener = nullptr;

struct Range {
  const char* begin;
  const char* end;
  MemoryOwner* owner;
};
using Ranges = std::vector<Range>;

// Read at every free of the process, changed when an arena comes or goes. Lists that were replaced
// are kept: a reader on another thread may still be in one.
std::atomic<const Ranges*> ranges{nullptr};

const Range* range_of(const void* address) {
  const Ranges* known = ranges.load(std::memory_order_acquire);
  if (known == nullptr) {
    return nullptr;
  }
  const auto found = std::ranges::find_if(*known, [address](const Range& range) {
    return address >= range.begin && address < range.end;
  });
  return found == known->end() ? nullptr : &*found;
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

std::atomic<int> logs{0};
struct OtherThreads {
  std::mutex mutex;
  std::unordered_set<const void*> addresses;
};
OtherThreads& other_threads() {
  static auto& others = *new OtherThreads;
  return others;
}

void log_other_thread(const void* address, bool allocated) {
  const std::lock_guard lock(other_threads().mutex);
  if (allocated) {
    other_threads().addresses.insert(address);
  } else {
    other_threads().addresses.erase(address);
  }
}

void release(void* address) {
  if (address == nullptr) {
    return;
  }
  if (listener != nullptr) {
    listener->freed(address);
  }
  if (logs.load(std::memory_order_relaxed) > 0) {
    log_other_thread(address, false);
  }
  const Range* const range = range_of(address);
  if (range == nullptr) {
    base->raw_deallocate(address);
  } else if (range->owner != nullptr) {
    range->owner->release(address);
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
      if (listener == nullptr && logs.load(std::memory_order_relaxed) > 0) {
        log_other_thread(address, true);
      }
    }
    return {address, address, &release, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }
};

c10::Allocator* install() {
  static c10::Allocator* const installed = [] {
    base = c10::GetCPUAllocator();
    // Above whatever a program installed by its own hand: that one stays below, as `base`.
    auto* const ours = new ListeningAllocator;
    c10::SetCPUAllocator(ours, /*priority=*/255);
    return ours;
  }();
  return installed;
}

}  // namespace

ListenGuard::ListenGuard(AllocationListener* mine) : previous_(listener) {
  install();
  listener = mine;
}

ListenGuard::~ListenGuard() { listener = previous_; }

OtherThreadsLog::OtherThreadsLog() {
  install();
  ++logs;
}
OtherThreadsLog::~OtherThreadsLog() {
  const std::lock_guard lock(other_threads().mutex);
  if (--logs == 0) {
    other_threads().addresses.clear();
  }
}
bool made_by_another_thread(const void* address) {
  const std::lock_guard lock(other_threads().mutex);
  return other_threads().addresses.contains(address);
}

bool is_borrowed(const c10::DataPtr& data) {
  install();
  return data.get() != nullptr && data.get_deleter() != &release &&
         data.get_deleter() != base->raw_deleter() && range_of(data.get()) == nullptr;
}

bool sees_all_requests() {
  const c10::Allocator* const ours = install();
  return c10::GetCPUAllocator() == ours;
}

MemoryRange::MemoryRange(void* begin, size_t bytes, MemoryOwner* owner)
    : begin_(static_cast<const char*>(begin)) {
  install();
  change_ranges([&](Ranges& all) { all.push_back({begin_, begin_ + bytes, owner}); });
}

MemoryRange::~MemoryRange() {
  change_ranges([&](Ranges& all) {
    std::erase_if(all, [&](const auto& range) { return range.begin == begin_; });
  });
}

}  // namespace remat::detail
