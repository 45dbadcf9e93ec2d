// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace remat::detail {

// A piece of memory and the piece of a file that it is written to or read from.
struct Transfer {
  enum class Kind : uint8_t { write, read };
  Kind kind = Kind::write;
  int64_t offset = 0;
  char* memory = nullptr;
  int64_t bytes = 0;
};

// Moves bytes between memory and a file, several transfers at once and in any order. The narrow
// place at which io_uring, blocking calls and the faults of tests are exchanged for each other. One
// thread uses it.
class FileTransfers {
 public:
  struct Ended {
    int64_t id = 0;
    int64_t result = 0;  // bytes moved, which may be fewer than asked for, or -errno
  };

  virtual ~FileTransfers() = default;
  // Puts a transfer under way, under a number of the caller's. At most depth() may be.
  virtual void begin(int64_t id, const Transfer& transfer) = 0;
  // Waits for one of those under way, of which there must be one.
  virtual Ended wait() = 0;
  virtual int64_t depth() const = 0;
};

// pwrite and pread.
std::unique_ptr<FileTransfers> make_blocking_transfers(int file);

// io_uring, where this build and the kernel have it and the process may use it; elsewhere nothing,
// and the reason.
std::unique_ptr<FileTransfers> make_uring_transfers(int file, int64_t depth, std::string& why_not);

// Around transfers that pass through the page cache: drops from it what has been moved, so that it
// holds little of the file.
std::unique_ptr<FileTransfers> make_uncached_transfers(
    int file, std::unique_ptr<FileTransfers> through_cache);

}  // namespace remat::detail
