// SPDX-License-Identifier: Apache-2.0
#include "remat/libtorch/direct_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>

namespace remat::detail {
namespace {

// File systems work in blocks of that size: smaller pieces are possible on many, but make them
// read, wait for each other and fill up with zeros.
constexpr int64_t kLeastAlignment = 4096;
constexpr int64_t kMostAlignment = 65536;

// What the file system says: 0 if it would quietly go through the page cache. Linux 6.1 and newer.
std::optional<int64_t> told_alignment(int file) {
#ifdef STATX_DIOALIGN
  struct statx found = {};
  if (statx(file, "", AT_EMPTY_PATH, STATX_DIOALIGN, &found) == 0 &&
      (found.stx_mask & STATX_DIOALIGN) != 0) {
    return std::max<int64_t>(found.stx_dio_mem_align, found.stx_dio_offset_align);
  }
#else
  static_cast<void>(file);
#endif
  return std::nullopt;
}

// 0, or errno. The file is empty afterwards.
int try_alignment(int file, int64_t alignment) {
  const auto bytes = static_cast<size_t>(alignment);
  const std::unique_ptr<void, decltype(&std::free)> block(std::aligned_alloc(bytes, bytes),
                                                          &std::free);
  if (block == nullptr) {
    return ENOMEM;
  }
  std::memset(block.get(), 0, bytes);
  const bool moved =
      pwrite(file, block.get(), bytes, 0) >= 0 && pread(file, block.get(), bytes, 0) >= 0;
  const int error = moved ? 0 : errno;
  return ftruncate(file, 0) == 0 ? error : errno;
}

}  // namespace

DirectAccess make_direct(int file) {
  const int flags = fcntl(file, F_GETFL);
  const std::optional<int64_t> told = told_alignment(file);
  if (told == 0 || fcntl(file, F_SETFL, flags | O_DIRECT) != 0) {
    return {false, 1, "the file system has no direct I/O"};
  }
  for (int64_t alignment = std::max(kLeastAlignment, told.value_or(0));; alignment *= 2) {
    const int error = try_alignment(file, alignment);
    if (error != EINVAL) {
      return {true, alignment, {}};
    }
    if (alignment >= kMostAlignment) {
      break;
    }
  }
  fcntl(file, F_SETFL, flags);
  return {false, 1, "the file system refuses direct I/O"};
}

}  // namespace remat::detail
