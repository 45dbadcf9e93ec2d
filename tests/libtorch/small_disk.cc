// SPDX-License-Identifier: Apache-2.0
#include "tests/libtorch/small_disk.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <vector>

namespace remat::testing {

SmallDisk::SmallDisk(int64_t bytes, const char* kind) {
  static std::atomic<int> count = 0;
  folder_ = ::testing::TempDir() + "remat_disk_" + std::to_string(getpid()) + "_" + std::to_string(count++);
  std::filesystem::create_directories(folder_);
  if (mount("none", folder_.c_str(), kind, 0, ("size=" + std::to_string(bytes)).c_str()) != 0) {
    why_not_ = std::strerror(errno);
  }
}

void SmallDisk::resize(int64_t bytes) {
  const int done = mount("none", folder_.c_str(), "tmpfs", MS_REMOUNT, ("size=" + std::to_string(bytes)).c_str());
  EXPECT_EQ(done, 0) << std::strerror(errno);
}

void SmallDisk::fill() {
  const int file = open((folder_ + "/filled").c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
  const std::vector<char> page(4096, 'x');
  while (write(file, page.data(), page.size()) > 0) {
  }
  close(file);
}

void SmallDisk::clear() { std::filesystem::remove(folder_ + "/filled"); }

SmallDisk::~SmallDisk() {
  if (made()) {
    umount2(folder_.c_str(), MNT_DETACH);
  }
  std::filesystem::remove_all(folder_);
}

}  // namespace remat::testing
