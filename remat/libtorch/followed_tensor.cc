// SPDX-License-Identifier: Apache-2.0
#include "remat/libtorch/followed_tensor.h"

#include <c10/core/CPUAllocator.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "remat/core/error.h"
#include "remat/core/units.h"
#include "remat/libtorch/fault_handler.h"
#include "remat/libtorch/fault_stack.h"
#include "remat/libtorch/pages.h"

namespace remat::detail {
namespace {

thread_local ByteSource* current_source = nullptr;

constexpr int64_t kReservedBytes = 512 * GiB;  // of addresses, not of memory

// Addresses that can neither be read nor written, handed out in turn. After so many storages that
// the first must be long gone, they begin again.
class Addresses {
 public:
  static Addresses& of_process() {
    static auto& addresses = *new Addresses;
    return addresses;
  }
  char* take(int64_t bytes) {
    const std::lock_guard lock(mutex_);
    const int64_t size = whole_pages(bytes);
    if (size > size_) {
      throw Error(concat("[step] a tensor of ", format_bytes(bytes),
                         " is more than the address space that is set aside for following"));
    }
    if (next_ + size > size_) {
      next_ = 0;
    }
    char* const begin = begin_ + next_;
    next_ += size;
    return begin;
  }
  bool contains(const void* address) const {
    return address >= begin_ && address < begin_ + size_;
  }

 private:
  Addresses() {
    for (size_ = kReservedBytes; size_ >= GiB; size_ /= 2) {
      void* const begin = mmap(nullptr, static_cast<size_t>(size_), PROT_NONE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (begin != MAP_FAILED) {
        begin_ = static_cast<char*>(begin);
        return;
      }
    }
    throw Error("[step] the system has no address space left for tensors without bytes; raise the "
                "limit of virtual memory (ulimit -v)");
  }

  std::mutex mutex_;
  char* begin_ = nullptr;
  int64_t size_ = 0;
  int64_t next_ = 0;
};

// What the DataPtr of a followed storage owns: its addresses, and memory there once it has bytes.
struct Reserved {
  char* begin = nullptr;
  int64_t bytes = 0;
  bool backed = false;
};

void release_reserved(void* context) {
  const std::unique_ptr<Reserved> reserved(static_cast<Reserved*>(context));
  if (reserved->backed) {
    mmap(reserved->begin, static_cast<size_t>(whole_pages(reserved->bytes)), PROT_NONE,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  }
}

Reserved* reserved_of(const c10::StorageImpl& storage) {
  const c10::DataPtr& data = storage.data_ptr();
  return data.get_deleter() == &release_reserved ? static_cast<Reserved*>(data.get_context())
                                                 : nullptr;
}

// The sources of all threads, for whoever touches a followed tensor from another one.
struct ActiveSources {
  std::mutex mutex;
  std::vector<ByteSource*> sources;
};
ActiveSources& active() {
  static auto& sources = *new ActiveSources;
  return sources;
}

// Tells the steps that run that another thread has touched a tensor without bytes. False if none runs.
bool tell_others() {
  const std::lock_guard lock(active().mutex);
  for (ByteSource* each : active().sources) {
    each->touched_by_another_thread();
  }
  return !active().sources.empty();
}

// LibTorch calls this on its way to a pointer that may be written through: data_ptr(), accessor(),
// numpy.
void wanted(c10::StorageImpl* storage) {
  if (current_source != nullptr) {
    current_source->bytes_wanted(*storage);
  } else if (is_followed(*storage) && !tell_others()) {
    throw Error("[step] the bytes of a tensor are asked for that has none: the step that made it "
                "failed; expected a step that ended well");
  }
}

// A pointer that may only be read through (const_data_ptr, printing) is handed out without a word.
// Its first use faults, here; when this returns, the bytes are there and the read is tried again.
bool mend_fault(void* address) {
  if (!Addresses::of_process().contains(address)) {
    return false;
  }
  if (current_source != nullptr) {
    bool found = false;
    call_on_large_stack([&] { found = current_source->bytes_wanted_at(address); });
    return found;
  }
  // Another thread than the step's: it gets zeros, and the step fails.
  const auto page = reinterpret_cast<uintptr_t>(address) / kPageBytes * kPageBytes;
  return tell_others() && mprotect(reinterpret_cast<void*>(page), kPageBytes, PROT_READ | PROT_WRITE) == 0;
}

void install_handler() {
  static std::once_flag forgotten_by_children;
  std::call_once(forgotten_by_children, [] {
    pthread_atfork(nullptr, nullptr, [] { current_source = nullptr; });  // the child is not part of the step
  });
  install_fault_handler(SIGSEGV, &mend_fault);
}

}  // namespace

ByteSourceGuard::ByteSourceGuard(ByteSource* mine) : previous_(std::exchange(current_source, mine)) {
  install_handler();
  const std::lock_guard lock(active().mutex);
  active().sources.push_back(mine);
}
ByteSourceGuard::~ByteSourceGuard() {
  const std::lock_guard lock(active().mutex);
  std::erase(active().sources, current_source);
  current_source = previous_;
}

c10::DataPtr reserve_addresses(int64_t bytes) {
  auto reserved = std::make_unique<Reserved>(Addresses::of_process().take(bytes), bytes);
  char* const begin = reserved->begin;
  return {begin, reserved.release(), &release_reserved, c10::Device(c10::kCPU)};
}

c10::intrusive_ptr<c10::StorageImpl> make_followed_storage(int64_t bytes) {
  c10::DataPtr nothing(nullptr, c10::Device(c10::kCPU));
  if (bytes > 0) {
    nothing = reserve_addresses(bytes);
  }
  auto storage = c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), static_cast<size_t>(bytes), std::move(nothing), nullptr,
      /*resizable=*/false);
  if (bytes > 0) {
    storage->set_materializer(&wanted);
  }
  return storage;
}

bool is_followed(const c10::StorageImpl& storage) {
  const Reserved* const reserved = reserved_of(storage);
  return reserved != nullptr && !reserved->backed;
}

bool lies_in(const c10::StorageImpl& storage, const void* address) {
  const Reserved* const reserved = reserved_of(storage);
  return reserved != nullptr && address >= reserved->begin &&
         address < reserved->begin + whole_pages(reserved->bytes);
}

void give_bytes(c10::StorageImpl& storage, c10::DataPtr bytes) {
  unwatch(storage);
  storage.set_data_ptr_noswap(std::move(bytes));
  storage.set_allocator(c10::GetCPUAllocator());
  storage.set_resizable(true);
}

void give_copy(c10::StorageImpl& storage, const void* bytes) {
  Reserved& reserved = *reserved_of(storage);
  const auto size = static_cast<size_t>(whole_pages(reserved.bytes));
  if (mprotect(reserved.begin, size, PROT_READ | PROT_WRITE) != 0) {
    throw Error(concat("[step] the system has no ", format_bytes(reserved.bytes),
                       " for a tensor that the host reads: ", std::strerror(errno)));
  }
  reserved.backed = true;
  if (bytes != nullptr) {
    std::memcpy(reserved.begin, bytes, static_cast<size_t>(reserved.bytes));
  }
  unwatch(storage);
}

void watch(c10::StorageImpl& storage) {
  if (!storage.has_materializer()) {
    storage.set_materializer(&wanted);
  }
}

void unwatch(c10::StorageImpl& storage) {
  if (storage.has_materializer()) {
    storage.clear_materializer();
  }
}

}  // namespace remat::detail
