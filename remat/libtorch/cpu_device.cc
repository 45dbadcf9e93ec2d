// SPDX-License-Identifier: Apache-2.0
#include <ATen/Parallel.h>
#include <dlfcn.h>
#include <sys/mman.h>

#include <atomic>
#include <chrono>
#include <cstring>

#ifdef __GLIBC__
#include <malloc.h>
#endif

#include "remat/core/error.h"
#include "remat/core/units.h"
#include "remat/libtorch/available_memory.h"
#include "remat/libtorch/device.h"
#include "remat/libtorch/file_channel.h"

namespace remat::detail {
namespace {

constexpr int64_t kHugePage = 2 * MiB;

// An interpreter, libraries: no tensors yet, in most programs.
const int64_t resident_at_load = resident_bytes("/");

class CpuDevice final : public Device {
 public:
  void* reserve(int64_t bytes) override {
    if (bytes == 0) {
      return nullptr;
    }
    // One huge page more than asked for, so that the arena can begin at a huge page; pages that are
    // never touched cost nothing.
    const auto size = static_cast<size_t>(round_to_page(bytes) + kHugePage);
    void* const begin =
        mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (begin == MAP_FAILED) {
      throw Error(concat("[execute] the system has no ", format_bytes(bytes),
                         " for the arena: ", std::strerror(errno)));
    }
    const auto address = reinterpret_cast<uintptr_t>(begin);
    const uintptr_t arena = (address + kHugePage - 1) / kHugePage * kHugePage;
    const uintptr_t unused = arena - address;
    if (unused > 0) {
      munmap(begin, unused);
    }
    const size_t tail = static_cast<size_t>(kHugePage) - unused;
    if (tail > 0) {
      munmap(reinterpret_cast<void*>(arena + round_to_page(bytes)), tail);
    }
    // Only whole huge pages: the end of the arena must not take more than it was given.
    const auto whole = static_cast<size_t>(bytes / kHugePage * kHugePage);
    if (whole > 0) {
      madvise(reinterpret_cast<void*>(arena), whole, MADV_HUGEPAGE);
    }
    return reinterpret_cast<void*>(arena);
  }
  void release(void* memory, int64_t bytes) override {
    if (memory != nullptr) {
      munmap(memory, static_cast<size_t>(round_to_page(bytes)));
    }
  }
  void discard(void* memory, int64_t bytes) override {
    const int64_t begin = round_to_page(reinterpret_cast<intptr_t>(memory));
    const int64_t end = (reinterpret_cast<intptr_t>(memory) + bytes) / 4096 * 4096;
    if (end > begin) {
      madvise(reinterpret_cast<void*>(begin), static_cast<size_t>(end - begin), MADV_DONTNEED);
    }
  }
  void trim() override {
#ifdef __GLIBC__
    malloc_trim(0);
#endif
    // Other allocators that may stand in for malloc, each by its own name for it.
    static const auto tcmalloc = reinterpret_cast<void (*)()>(
        dlsym(RTLD_DEFAULT, "MallocExtension_ReleaseFreeMemory"));
    static const auto mimalloc = reinterpret_cast<void (*)(bool)>(dlsym(RTLD_DEFAULT, "mi_collect"));
    if (tcmalloc != nullptr) {
      tcmalloc();
    }
    if (mimalloc != nullptr) {
      mimalloc(/*force=*/true);
    }
  }
  void copy(void* to, const void* from, int64_t bytes) override {
    std::memcpy(to, from, static_cast<size_t>(bytes));
  }
  std::unique_ptr<Channel> open_channel(const std::string& folder) override {
    std::unique_ptr<FileChannel> channel = open_file_channel({.folder = folder});
    if (channel->facts().in_memory) {
      throw Error(concat("[offload] '", folder, "' lies in memory itself (tmpfs): what is written there is not "
                         "gone; name a folder on a disk for offloading, or none"));
    }
    return channel;
  }
  int64_t now_ns() override {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }
  int64_t available_bytes() override { return detail::available_bytes("/"); }
  int64_t resident_bytes() override { return detail::resident_bytes("/") - resident_at_load; }
  MemoryPressure memory_pressure() override {
    return {.left_bytes = available_bytes(), .stalled_percent = detail::stalled_percent("/")};
  }
  int thread_count() override { return at::get_num_threads(); }

 private:
  static int64_t round_to_page(int64_t bytes) { return (bytes + 4095) / 4096 * 4096; }
};

std::atomic<Device*> in_its_place = nullptr;

}  // namespace

Device& cpu_device() {
  static CpuDevice device;
  Device* const other = in_its_place;
  return other != nullptr ? *other : device;
}

DeviceGuard::DeviceGuard(Device& device) : previous_(in_its_place.exchange(&device)) {}
DeviceGuard::~DeviceGuard() { in_its_place = previous_; }

}  // namespace remat::detail
