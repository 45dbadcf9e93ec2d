// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/Allocator.h>

#include <cstddef>

// Standing between LibTorch and its CPU allocator. From the first use on, every tensor and every
// scratch buffer of a kernel is asked for here; a thread that listens sees its own requests and may
// answer them, everything else goes to the allocator that was there before.
namespace remat::detail {

// What a thread sees of its own requests. Must not allocate tensors itself.
class AllocationListener {
 public:
  virtual ~AllocationListener() = default;
  // Memory for a request of `bytes` > 0, or null: then LibTorch's allocator answers. What is
  // returned must lie in a MemoryRange: LibTorch's allocator never frees it.
  virtual void* answer(size_t bytes) = 0;
  virtual void allocated(void* address, size_t bytes) = 0;  // by LibTorch's allocator
  virtual void freed(void* address) = 0;                    // before it is
};

// Installs itself, process-wide, when first used. Guards nest; the inner one alone listens.
class ListenGuard {
 public:
  explicit ListenGuard(AllocationListener* listener);
  ~ListenGuard();
  ListenGuard(const ListenGuard&) = delete;
  ListenGuard& operator=(const ListenGuard&) = delete;

 private:
  AllocationListener* previous_;
};

// Who is told that memory of its range was freed, on whatever thread.
class MemoryOwner {
 public:
  virtual ~MemoryOwner() = default;
  virtual void release(void* address) = 0;
};

// Makes known, while it lives, that addresses in [begin, begin + bytes) are not the allocator's to
// free: the owner is told, if there is one.
class MemoryRange {
 public:
  MemoryRange(void* begin, size_t bytes, MemoryOwner* owner = nullptr);
  ~MemoryRange();
  MemoryRange(const MemoryRange&) = delete;
  MemoryRange& operator=(const MemoryRange&) = delete;

 private:
  const char* begin_;
};

// Bytes that neither LibTorch's allocator nor an arena owns (from_blob): their owner may write to them
// at any time.
bool is_borrowed(const c10::DataPtr& data);

// While it lives, memory that threads without a listener ask for is remembered.
class OtherThreadsLog {
 public:
  OtherThreadsLog();
  ~OtherThreadsLog();
  OtherThreadsLog(const OtherThreadsLog&) = delete;
  OtherThreadsLog& operator=(const OtherThreadsLog&) = delete;
};
// Whether the memory was asked for by such a thread since a log began.
bool made_by_another_thread(const void* address);

// Whether every request of the process passes here: no other allocator was installed on top.
bool sees_all_requests();

}  // namespace remat::detail
