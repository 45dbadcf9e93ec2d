// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace remat::testing {

// A memory cgroup of version 1 or 2, where this process may make one.
class MemoryCgroup {
 public:
  explicit MemoryCgroup(int64_t limit_bytes);
  ~MemoryCgroup();
  MemoryCgroup(const MemoryCgroup&) = delete;
  MemoryCgroup& operator=(const MemoryCgroup&) = delete;

  bool made() const { return why_not_.empty(); }
  const std::string& why_not() const { return why_not_; }

  struct Ended {
    bool killed = false;  // by the kernel, for lack of memory
    int code = 0;
    std::string output;
  };
  // This program with these arguments, inside of the group.
  Ended run(const std::vector<std::string>& arguments) const;

  // The most that the group ever used, by the kernel's own count, page cache included; 0 where it does not
  // say.
  int64_t peak_bytes() const;
  // How many processes of the group the kernel has ended for lack of memory.
  int64_t oom_kills() const;
  const std::string& folder() const { return folder_; }

 private:
  void write(const std::string& file, const std::string& text);

  std::string folder_;
  std::string why_not_;
  bool second_version_ = false;
};

}  // namespace remat::testing
