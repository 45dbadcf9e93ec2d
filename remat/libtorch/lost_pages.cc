// SPDX-License-Identifier: Apache-2.0
#include "remat/libtorch/lost_pages.h"

#include <signal.h>
#include <sys/mman.h>

#include <array>
#include <cstdint>

#include "remat/libtorch/fault_handler.h"
#include "remat/libtorch/pages.h"

namespace remat::detail {
namespace {

constexpr uintptr_t kNowhere = UINTPTR_MAX;

// Read by a signal handler: no locks, no memory.
struct Slot {
  std::atomic<bool> taken = false;
  std::atomic<uintptr_t> begin = kNowhere;
  std::atomic<uintptr_t> end = 0;
  std::atomic<std::atomic<bool>*> lost = nullptr;
};
constexpr size_t kSlots = 64;
std::array<Slot, kSlots> slots;

bool give_zeros(void* at) {
  const auto address = reinterpret_cast<uintptr_t>(at);
  for (const Slot& slot : slots) {
    if (address >= slot.begin && address < slot.end) {
      slot.lost.load()->store(true);
      return mmap(reinterpret_cast<void*>(address / kPageBytes * kPageBytes), kPageBytes, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED;
    }
  }
  return false;
}

}  // namespace

LostPages::LostPages(void* begin, size_t bytes, std::atomic<bool>& lost) : slot_(kSlots) {
  install_fault_handler(SIGBUS, &give_zeros);
  for (size_t i = 0; i < kSlots; ++i) {
    if (!slots[i].taken.exchange(true)) {
      slots[i].lost = &lost;
      slots[i].end = reinterpret_cast<uintptr_t>(begin) + bytes;
      slots[i].begin = reinterpret_cast<uintptr_t>(begin);
      slot_ = i;
      return;
    }
  }
}

LostPages::~LostPages() {
  if (slot_ < kSlots) {
    slots[slot_].begin = kNowhere;
    slots[slot_].end = 0;
    slots[slot_].taken = false;
  }
}

}  // namespace remat::detail
