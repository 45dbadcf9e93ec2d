// SPDX-License-Identifier: Apache-2.0
#include "remat/libtorch/unlinked_file.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

namespace remat::detail {

int open_unlinked_file(const std::string& folder) {
  const int file = open(folder.c_str(), O_TMPFILE | O_EXCL | O_RDWR | O_CLOEXEC, S_IRUSR | S_IWUSR);
  // Kernels and file systems that do not know O_TMPFILE take it for an attempt to write to a
  // folder, or say so.
  const bool unknown = file < 0 && (errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL);
  return unknown ? open_and_unlink_file(folder) : file;
}

int open_and_unlink_file(const std::string& folder) {
  std::string path = folder + "/remat-XXXXXX";
  const int file = mkostemp(path.data(), O_CLOEXEC);
  if (file >= 0) {
    unlink(path.c_str());
  }
  return file;
}

std::optional<int64_t> free_bytes_beside(int file) {
  struct statfs found = {};
  if (fstatfs(file, &found) != 0 || found.f_blocks == 0) {
    return std::nullopt;
  }
  return static_cast<int64_t>(found.f_bavail) * found.f_bsize;
}

bool lies_in_memory(int file) {
  struct statfs found = {};
  return fstatfs(file, &found) == 0 && (found.f_type == TMPFS_MAGIC || found.f_type == RAMFS_MAGIC);
}

}  // namespace remat::detail
