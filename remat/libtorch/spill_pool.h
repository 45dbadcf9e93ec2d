// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>

#include "remat/libtorch/allocator.h"
#include "remat/libtorch/lost_pages.h"
#include "remat/libtorch/spill_file.h"

namespace remat::detail {

struct SpillCounts {
  int64_t resident_bytes = 0;       // blocks in memory
  int64_t peak_resident_bytes = 0;
  int64_t spilled_bytes = 0;        // blocks in the file
  int64_t written_bytes = 0;        // moved to the file since the start
  int64_t spent_ns = 0;             // on getting memory and on moving
  int64_t write_ns = 0;             // of it, on moving to the file
};

// Who is told of what becomes of a pool, between two requests.
struct SpillWatch {
  std::function<void()> first_spill = {};              // the first block has been moved
  std::function<void(const SpillCounts&)> timed = {};  // enough to know how fast the disk is
};

// Memory for a step that is recorded and may not fit: blocks that were used last are in memory, the
// others in a file, mapped at the same addresses (spill_file.h). So every pointer stays good, and
// only speed depends on what is where. There is no file until something does not fit.
//
// It lives for as long as one of its blocks does, whoever made it. Where a block cannot be moved or has been
// lost, it throws Error, and no block is moved from then on: all that are left can be read where they are.
class SpillPool final : public AllocationListener,
                        public MemoryOwner,
                        public std::enable_shared_from_this<SpillPool> {
 public:
  static std::shared_ptr<SpillPool> make(std::string folder, int64_t limit_bytes, SpillWatch watch = {});
  ~SpillPool() override;

  // So much may be in memory from now on. What an op uses stays, even if it is more.
  void set_limit(int64_t bytes);
  // Brings the blocks at these addresses into memory, where they stay until the next call: all that fit, and
  // a few in any case. Addresses of others are passed over.
  void use(std::span<const void* const> addresses);
  bool owns(const void* address) const;

  // Whether something was thrown, whoever caught it, or lost.
  bool failed() const;
  // Throws that again.
  void check() const;
  // As use(), where there is no way back: does not throw. False if the block at the address is lost.
  bool use_or_read(const void* address) noexcept;

  // A block for every request that is not small.
  void* answer(size_t bytes) override;
  void allocated(void*, size_t) override {}
  void freed(void*) override {}
  void release(void* address) override;

  SpillCounts counts() const;

 private:
  struct Block {
    int64_t bytes = 0;       // whole pages
    bool resident = true;
    int64_t place = -1;      // in the file, once it was there
    int64_t used_by = 0;     // the use() that needed it last
    std::list<char*>::iterator in_order;
  };

  SpillPool(std::string folder, int64_t limit_bytes, SpillWatch watch);
  template <typename Work>
  auto noting_failure(const Work& work);
  void throw_if_lost() const;
  void tell();
  char* new_block(int64_t bytes);
  void bring(std::span<const void* const> addresses);
  std::map<char*, Block>::iterator block_at(const void* address);
  char* take_addresses(int64_t bytes);
  void give_addresses(char* begin, int64_t bytes);
  void make_room(int64_t bytes);
  void evict(char* begin, Block& block);

  mutable std::mutex mutex_;
  std::string folder_;
  int64_t limit_bytes_;
  SpillWatch watch_;
  bool told_first_ = false;
  bool told_speed_ = false;
  char* memory_ = nullptr;  // addresses, without memory but for blocks
  int64_t address_bytes_ = 0;
  std::optional<MemoryRange> range_;
  std::map<char*, int64_t> free_;   // addresses: where a gap begins, and its bytes
  std::map<char*, Block> blocks_;
  std::list<char*> order_;          // of blocks in memory, by their last use
  int64_t uses_ = 0;
  std::unique_ptr<SpillFile> file_;
  std::atomic<bool> lost_ = false;  // pages of the file could not be read
  std::optional<LostPages> lost_pages_;
  std::string failure_;
  SpillCounts counts_;
  std::shared_ptr<SpillPool> self_;  // while there are blocks
};

}  // namespace remat::detail
