// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace remat::testing {

// A file system with room for so many bytes, where this process may mount one. Of the kinds, "ramfs" has no limit, and
// no direct I/O.
class SmallDisk {
 public:
  explicit SmallDisk(int64_t bytes, const char* kind = "tmpfs");
  ~SmallDisk();
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;

  bool made() const { return why_not_.empty(); }
  const std::string& why_not() const { return why_not_; }
  const std::string& folder() const { return folder_; }
  // Another size, for what is written from now on.
  void resize(int64_t bytes);
  // Leaves no room, or all of it again.
  void fill();
  void clear();

 private:
  std::string folder_;
  std::string why_not_;
};

}  // namespace remat::testing
