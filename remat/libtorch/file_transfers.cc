// SPDX-License-Identifier: Apache-2.0
#include "remat/libtorch/file_transfers.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <deque>
#include <map>
#include <utility>

#include "remat/core/error.h"
#include "remat/core/units.h"

namespace remat::detail {
namespace {

class BlockingTransfers final : public FileTransfers {
 public:
  explicit BlockingTransfers(int file) : file_(file) {}

  void begin(int64_t id, const Transfer& transfer) override {
    id_ = id;
    next_ = transfer;
  }
  Ended wait() override {
    const auto bytes = static_cast<size_t>(next_.bytes);
    const ssize_t moved = next_.kind == Transfer::Kind::write
                              ? pwrite(file_, next_.memory, bytes, next_.offset)
                              : pread(file_, next_.memory, bytes, next_.offset);
    return {id_, moved < 0 ? -errno : moved};
  }
  int64_t depth() const override { return 1; }

 private:
  int file_;
  int64_t id_ = 0;
  Transfer next_;
};

// A write has ended when the disk has it, not when the page cache does: what the cache holds of the
// file stays small, and a disk that fails is noticed. While one is on its way to the disk, the next
// are copied into the cache.
class UncachedTransfers final : public FileTransfers {
 public:
  UncachedTransfers(int file, std::unique_ptr<FileTransfers> through_cache)
      : file_(file), through_cache_(std::move(through_cache)) {}

  void begin(int64_t id, const Transfer& transfer) override { waiting_.push_back({id, transfer}); }

  Ended wait() override {
    while (on_the_way_.size() < kBehind && (!waiting_.empty() || !in_cache_.empty())) {
      while (!waiting_.empty() &&
             static_cast<int64_t>(in_cache_.size()) < through_cache_->depth()) {
        const Numbered next = waiting_.front();
        waiting_.pop_front();
        in_cache_[next.id] = next.transfer;
        through_cache_->begin(next.id, next.transfer);
      }
      const Ended ended = through_cache_->wait();
      const Transfer transfer = in_cache_.extract(ended.id).mapped();
      if (transfer.kind == Transfer::Kind::read || ended.result <= 0) {
        drop(transfer.offset, transfer.bytes);
        return ended;
      }
      sync_file_range(file_, transfer.offset, ended.result,
                      SYNC_FILE_RANGE_WRITE);  // begins, and does not wait
      on_the_way_.push_back({ended, transfer.offset});
    }
    REMAT_ASSERT(!on_the_way_.empty());
    return oldest_written();
  }
  int64_t depth() const override { return through_cache_->depth() + static_cast<int64_t>(kBehind); }

 private:
  static constexpr size_t kBehind = 8;
  static constexpr int64_t kLargestFolio = 2 * MiB;
  static constexpr int64_t kReadAhead = 16 * MiB;

  struct Numbered {
    int64_t id = 0;
    Transfer transfer;
  };
  struct Written {
    Ended ended;
    int64_t offset = 0;
  };

  // The cache holds pages in groups, of which it drops only whole ones: a group that began in the
  // piece before is dropped with this one. What was read ahead is dropped when it turns out that it
  // was not needed.
  void drop(int64_t offset, int64_t bytes) {
    if (offset != dropped_end_) {
      drop_between(dropped_end_ - kLargestFolio, dropped_end_ + kReadAhead);
    }
    drop_between(offset - kLargestFolio, offset + bytes);
    dropped_end_ = offset + bytes;
  }
  void drop_between(int64_t begin, int64_t end) {
    begin = std::max<int64_t>(begin, 0);
    posix_fadvise(file_, begin, end - begin, POSIX_FADV_DONTNEED);
  }

  Ended oldest_written() {
    const Written oldest = on_the_way_.front();
    on_the_way_.pop_front();
    const bool failed = sync_file_range(file_, oldest.offset, oldest.ended.result,
                                        SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE |
                                            SYNC_FILE_RANGE_WAIT_AFTER) != 0 &&
                        (errno == EIO || errno == ENOSPC || errno == EDQUOT);
    if (failed) {
      // It is told once for the file: any of those on their way may be the one.
      for (Written& each : on_the_way_) {
        each.ended.result = -errno;
      }
      return {oldest.ended.id, -errno};
    }
    if (oldest.ended.result > 0) {
      drop(oldest.offset, oldest.ended.result);
    }
    return oldest.ended;
  }

  int file_;
  std::unique_ptr<FileTransfers> through_cache_;
  std::deque<Numbered> waiting_;
  std::map<int64_t, Transfer> in_cache_;  // on their way to the page cache or from it
  std::deque<Written> on_the_way_;        // from there to the disk
  int64_t dropped_end_ = 0;
};

}  // namespace

std::unique_ptr<FileTransfers> make_blocking_transfers(int file) {
  return std::make_unique<BlockingTransfers>(file);
}

std::unique_ptr<FileTransfers> make_uncached_transfers(
    int file, std::unique_ptr<FileTransfers> through_cache) {
  return std::make_unique<UncachedTransfers>(file, std::move(through_cache));
}

}  // namespace remat::detail
