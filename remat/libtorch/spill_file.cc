// SPDX-License-Identifier: Apache-2.0
#include "remat/libtorch/spill_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "remat/core/error.h"
#include "remat/core/units.h"
#include "remat/libtorch/pages.h"
#include "remat/libtorch/unlinked_file.h"

namespace remat::detail {
namespace {

constexpr int64_t kTransferBytes = 8 * MiB;

// Waits until a part of a file is on the disk. True, too, where the system or the file system cannot do that, as
// one in memory.
bool write_back(int file, int64_t place, int64_t bytes) {
  return sync_file_range(file, place, bytes,
                         SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER) == 0 ||
         errno == ENOSYS || errno == EINVAL || errno == ESPIPE;
}

}  // namespace

SpillFile::SpillFile(std::string folder, bool direct) : folder_(std::move(folder)) {
  file_ = open_unlinked_file(folder_);
  if (file_ < 0) {
    throw Error(concat("[step] no file for values that do not fit into the budget can be made in '", folder_,
                       "': ", std::strerror(errno),
                       "; expected a folder that can be written: set StepOptions::spill_folder"));
  }
  direct_ = direct && fcntl(file_, F_SETFL, O_DIRECT) == 0;
}

SpillFile::~SpillFile() { close(file_); }

// Whether a call that failed is worth another try without going to the disk directly, which not every
// file system can.
bool SpillFile::tried_without_direct() {
  if (errno != EINVAL || !direct_) {
    return false;
  }
  direct_ = false;
  fcntl(file_, F_SETFL, 0);
  return true;
}

// What was cut off would come back as zeros as soon as something is written behind it.
void SpillFile::check_length() const {
  struct stat found = {};
  if (fstat(file_, &found) != 0 || found.st_size < written_end_) {
    throw Error(concat("[step] values of the step were lost: the file in '", folder_, "' that they were in was cut to ",
                       format_bytes(found.st_size), "; expected the ", format_bytes(written_end_),
                       " that were written to it: set StepOptions::spill_folder to another one"));
  }
}

void SpillFile::write(const char* from, int64_t place, int64_t bytes) {
  const auto give_up = [&](int error) {
    forget(place, bytes);
    throw Error(concat("[step] ", format_bytes(bytes), " of the step's values cannot be written to a file in '", folder_,
                       "' (", format_bytes(free_bytes()), " free): ", std::strerror(error),
                       "; expected room for what does not fit into the budget while the step is recorded: free "
                       "some, set StepOptions::spill_folder, or raise the budget"));
  };
  check_length();
  for (int64_t done = 0; done < bytes;) {
    const auto count = static_cast<size_t>(std::min(kTransferBytes, bytes - done));
    const ssize_t written = pwrite(file_, from + done, count, place + done);
    if (written > 0) {
      done += direct_ ? written / kPageBytes * kPageBytes : written;  // a direct write goes on at a page
    } else if (written == 0 || (errno != EINTR && !tried_without_direct())) {
      give_up(written == 0 ? ENOSPC : errno);
    }
  }
  // What the page cache took may still fail on its way to the disk, and is told of here alone: dropped before, it
  // would come back as whatever the disk has.
  if (!direct_ && !write_back(file_, place, bytes)) {
    give_up(errno);
  }
  written_end_ = std::max(written_end_, place + bytes);
}

void SpillFile::read(char* to, int64_t place, int64_t bytes) {
  check_length();
  for (int64_t done = 0; done < bytes;) {
    const auto count = static_cast<size_t>(std::min(kTransferBytes, bytes - done));
    const ssize_t found = pread(file_, to + done, count, place + done);
    if (found > 0) {
      done += direct_ ? found / kPageBytes * kPageBytes : found;
    } else if (found == 0 || (errno != EINTR && !tried_without_direct())) {
      throw Error(concat("[step] values of the step cannot be read back from a file in '", folder_,
                         "': ", found == 0 ? "it is too short" : std::strerror(errno)));
    }
  }
}

void SpillFile::put(int64_t place, char* pages, int64_t bytes) {
  write(pages, place, bytes);
  if (!direct_) {
    posix_fadvise(file_, place, bytes, POSIX_FADV_DONTNEED);
  }
  map(place, pages, bytes);
}

void SpillFile::map(int64_t place, char* pages, int64_t bytes) {
  if (mmap(pages, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file_,
           place) == MAP_FAILED) {
    throw Error(concat("[step] a file in '", folder_, "' cannot be mapped: ", std::strerror(errno)));
  }
}

bool SpillFile::can_be_read(int64_t place, char* pages, int64_t bytes) {
  const int64_t part = std::min(bytes, kTransferBytes);
  void* const buffer = mmap(nullptr, static_cast<size_t>(part), PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (buffer == MAP_FAILED) {
    return false;
  }
  bool all = true;
  try {
    for (int64_t done = 0; done < bytes; done += part) {
      read(static_cast<char*>(buffer), place + done, std::min(part, bytes - done));
    }
    map(place, pages, bytes);
  } catch (const Error&) {
    all = false;
  }
  munmap(buffer, static_cast<size_t>(part));
  return all;
}

void SpillFile::load(int64_t place, char* pages, int64_t bytes) {
  const auto size = static_cast<size_t>(bytes);
  // Elsewhere first: the mapping stays until all of it has been read.
  void* const fresh = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (fresh == MAP_FAILED) {
    throw Error(concat("[step] the system has no ", format_bytes(bytes), " for a value of the step: ",
                       std::strerror(errno)));
  }
  try {
    read(static_cast<char*>(fresh), place, bytes);
  } catch (...) {
    munmap(fresh, size);
    throw;
  }
  if (mremap(fresh, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, pages) == MAP_FAILED) {
    const int error = errno;
    munmap(fresh, size);
    throw Error(concat("[step] ", format_bytes(bytes), " cannot be mapped: ", std::strerror(error)));
  }
  posix_fadvise(file_, place, bytes, POSIX_FADV_DONTNEED);
}

void SpillFile::forget(int64_t place, int64_t bytes) {
  fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, place, bytes);
}

int64_t SpillFile::free_bytes() const { return free_bytes_beside(file_).value_or(0); }

std::optional<SpillRoom> spill_room(const std::string& folder) {
  const int opened = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (opened < 0) {
    return std::nullopt;
  }
  const SpillRoom room{.free_bytes = free_bytes_beside(opened).value_or(0), .is_memory = lies_in_memory(opened)};
  close(opened);
  return room;
}

std::string default_spill_folder() {
  const char* const chosen = std::getenv("TMPDIR");
  return chosen != nullptr && *chosen != '\0' ? chosen : "/var/tmp";
}

}  // namespace remat::detail
