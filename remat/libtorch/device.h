// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <memory>
#include <string>

#include "remat/libtorch/channel.h"

namespace remat::detail {

// How short memory is.
struct MemoryPressure {
  int64_t left_bytes = 0;       // as available_bytes()
  double stalled_percent = 0;   // as stalled_percent()
};

// Everything that depends on the device, together with rng.h (generators) and allocator.h (who
// answers LibTorch's requests). Another device is another implementation of this.
class Device {
 public:
  virtual ~Device() = default;

  // Memory for an arena, zero, in huge pages where the system has them. It begins at a multiple of the
  // alignment of every channel that open_channel() gives (4096 where a disk is written past the page cache),
  // and of 64 in any case. Throws Error if there is not enough.
  virtual void* reserve(int64_t bytes) = 0;
  virtual void release(void* memory, int64_t bytes) = 0;
  // Gives the whole pages inside of reserved memory back to the system until they are used again.
  virtual void discard(void* memory, int64_t bytes) = 0;
  // Gives memory that LibTorch freed, and its allocator keeps, back to the system.
  virtual void trim() = 0;
  virtual void copy(void* to, const void* from, int64_t bytes) = 0;
  // Where values of an arena go that a plan offloads, and come back from: for the CPU a file without a name in a
  // folder. A device with memory of its own may have the host's. Throws Error if there can be none, or if it
  // would lie in the memory that it is to spare.
  virtual std::unique_ptr<Channel> open_channel(const std::string& folder) = 0;
  // A clock that is read when all work given to the device is done.
  virtual int64_t now_ns() = 0;
  // What the process can still take: the least that the machine and the limits on the process leave.
  virtual int64_t available_bytes() = 0;
  // What of the process is in memory and in no file, beyond what was there when the library was loaded.
  virtual int64_t resident_bytes() = 0;
  virtual MemoryPressure memory_pressure() = 0;
  // What was measured with so many threads holds for so many.
  virtual int thread_count() = 0;
};

Device& cpu_device();

// Another device in place of the CPU's until the end of the scope, for the whole process: tests have clocks
// that they set, and memory that is short.
class DeviceGuard {
 public:
  explicit DeviceGuard(Device& device);
  ~DeviceGuard();
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

 private:
  Device* previous_;
};

}  // namespace remat::detail
