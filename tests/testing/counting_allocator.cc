// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/counting_allocator.h"

#include <c10/core/CPUAllocator.h>

#include <atomic>
#include <cstdlib>
#include <new>

namespace remat::testing {
namespace {

std::atomic<int64_t> live{0};
std::atomic<int64_t> peak{0};

constexpr size_t kHeader = 64;  // keeps the alignment that kernels expect; holds the size

void release(void* pointer) {
  if (pointer != nullptr) {
    char* block = static_cast<char*>(pointer) - kHeader;
    live -= *reinterpret_cast<int64_t*>(block);
    std::free(block);
  }
}

class CountingAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t size) override {
    void* pointer = nullptr;
    if (size > 0) {
      void* block = nullptr;
      if (posix_memalign(&block, 64, size + kHeader) != 0) {
        throw std::bad_alloc();
      }
      *static_cast<int64_t*>(block) = static_cast<int64_t>(size);
      pointer = static_cast<char*>(block) + kHeader;
      const int64_t now = live += static_cast<int64_t>(size);
      for (int64_t seen = peak; now > seen && !peak.compare_exchange_weak(seen, now);) {
      }
    }
    return {pointer, pointer, &release, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, size_t size) const override {
    default_copy_data(to, from, size);
  }
};

void install() {
  static CountingAllocator& allocator = *new CountingAllocator();
  static const bool installed = [] {
    c10::SetCPUAllocator(&allocator, /*priority=*/100);
    return true;
  }();
  (void)installed;
}

}  // namespace

int64_t live_bytes() {
  install();
  return live;
}

int64_t peak_bytes() {
  install();
  return peak;
}

void reset_peak() {
  install();
  peak = live.load();
}

}  // namespace remat::testing
