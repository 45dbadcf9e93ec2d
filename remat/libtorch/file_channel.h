// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "remat/core/units.h"
#include "remat/libtorch/channel.h"
#include "remat/libtorch/file_transfers.h"

namespace remat::detail {

struct FileChannelOptions {
  std::string folder;
  int64_t reserve_bytes = 0;  // as by reserve()
  bool prefer_uring = true;   // else blocking calls
  bool direct = true;         // past the page cache, where the file system can do that

  // How requests are cut, and how many pieces are under way at once (`channel_bench pieces` compares
  // others).
  int64_t piece_bytes = 4 * MiB;
  int64_t depth = 4;

  // For tests: as on a file system that has no direct I/O, or no files without names; what stands
  // between the channel and the file.
  bool without_direct = false;
  bool without_nameless_files = false;
  std::function<std::unique_ptr<FileTransfers>(std::unique_ptr<FileTransfers>)> around_transfers =
      {};
};

struct FileChannelFacts {
  bool uring = false;
  bool direct = false;
  bool in_memory = false;  // the folder lies in memory (tmpfs): writing to it frees nothing
  int64_t alignment_bytes = 1;
  std::string why_no_uring = {};  // where it was preferred
  std::string why_not_direct = {};
};

// A Channel to a file without a name in a folder: nothing is left behind, however the process ends.
// A thread of its own moves the bytes, so that the caller's spends a few microseconds per request.
class FileChannel : public Channel {
 public:
  virtual const FileChannelFacts& facts() const = 0;
};

// Throws Error if there can be no such file, or the room that is asked for is not there.
std::unique_ptr<FileChannel> open_file_channel(FileChannelOptions options);

}  // namespace remat::detail
