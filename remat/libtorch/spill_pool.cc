// SPDX-License-Identifier: Apache-2.0
#include "remat/libtorch/spill_pool.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <utility>

#include "remat/core/error.h"
#include "remat/core/units.h"
#include "remat/libtorch/device.h"
#include "remat/libtorch/pages.h"

namespace remat::detail {
namespace {

constexpr int64_t kSmallBytes = 32 * 1024;  // such requests are left to LibTorch's allocator
constexpr int64_t kHugePage = 2 * MiB;
// Addresses cost nothing; a process whose addresses are limited gets fewer.
constexpr int64_t kMostAddresses = int64_t{1} << 40;
constexpr int64_t kFewestAddresses = int64_t{1} << 32;
// So many operands are brought into memory whatever the limit is. An op on lists of tensors finds the others
// through their mapping.
constexpr int kAlwaysLoaded = 8;
constexpr int64_t kWorthTiming = 32 * MiB;  // of writing

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23  // Linux 5.14
#endif

// Adds the time that it lives.
class Stopwatch {
 public:
  explicit Stopwatch(int64_t& total_ns) : total_ns_(total_ns), start_ns_(cpu_device().now_ns()) {}
  ~Stopwatch() { total_ns_ += cpu_device().now_ns() - start_ns_; }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  int64_t& total_ns_;
  int64_t start_ns_;
};

}  // namespace

std::shared_ptr<SpillPool> SpillPool::make(std::string folder, int64_t limit_bytes, SpillWatch watch) {
  return std::shared_ptr<SpillPool>(new SpillPool(std::move(folder), limit_bytes, std::move(watch)));
}

SpillPool::SpillPool(std::string folder, int64_t limit_bytes, SpillWatch watch)
    : folder_(std::move(folder)), limit_bytes_(limit_bytes), watch_(std::move(watch)) {
  void* found = MAP_FAILED;
  for (address_bytes_ = kMostAddresses; address_bytes_ >= kFewestAddresses; address_bytes_ /= 2) {
    found = mmap(nullptr, static_cast<size_t>(address_bytes_), PROT_NONE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (found != MAP_FAILED) {
      break;
    }
  }
  if (found == MAP_FAILED) {
    throw Error(concat("[step] the system has no addresses for values that are recorded: ",
                       std::strerror(errno)));
  }
  memory_ = static_cast<char*>(found);
  range_.emplace(memory_, static_cast<size_t>(address_bytes_), this);
  free_.emplace(memory_, address_bytes_);
}

SpillPool::~SpillPool() {
  range_.reset();
  lost_pages_.reset();
  munmap(memory_, static_cast<size_t>(address_bytes_));
}

bool SpillPool::owns(const void* address) const {
  return address >= memory_ && address < memory_ + address_bytes_;
}

bool SpillPool::failed() const {
  const std::lock_guard lock(mutex_);
  return lost_ || !failure_.empty();
}

void SpillPool::check() const {
  const std::lock_guard lock(mutex_);
  if (!failure_.empty()) {
    throw Error(failure_);
  }
  throw_if_lost();
}

void SpillPool::throw_if_lost() const {
  if (lost_) {
    throw Error(concat("[step] values of the step were lost: the file in '", folder_,
                       "' that they were in was cut short, or its disk fails; expected what was written to it: "
                       "set StepOptions::spill_folder to another one"));
  }
}

// With the lock held.
template <typename Work>
auto SpillPool::noting_failure(const Work& work) {
  try {
    return work();
  } catch (const Error& error) {
    if (failure_.empty()) {
      failure_ = error.what();
    }
    throw;
  }
}

// Without the lock: whoever is told may ask for memory.
void SpillPool::tell() {
  bool first = false;
  std::optional<SpillCounts> timed;
  {
    const std::lock_guard lock(mutex_);
    first = counts_.written_bytes > 0 && !std::exchange(told_first_, true);
    if (counts_.written_bytes >= kWorthTiming && !std::exchange(told_speed_, true)) {
      timed = counts_;
    }
  }
  if (first && watch_.first_spill) {
    watch_.first_spill();
  }
  if (timed && watch_.timed) {
    watch_.timed(*timed);
  }
}

std::map<char*, SpillPool::Block>::iterator SpillPool::block_at(const void* address) {
  if (!owns(address)) {
    return blocks_.end();
  }
  const auto after = blocks_.upper_bound(static_cast<char*>(const_cast<void*>(address)));
  return after == blocks_.begin() ? blocks_.end() : std::prev(after);
}

bool SpillPool::use_or_read(const void* address) noexcept {
  try {
    use({&address, 1});
  } catch (const Error&) {
    // It may still be read where it is.
  }
  const std::lock_guard lock(mutex_);
  const auto found = block_at(address);
  return (!lost_ && failure_.empty()) || found == blocks_.end() || found->second.resident ||
         file_->can_be_read(found->second.place, found->first, found->second.bytes);
}

char* SpillPool::take_addresses(int64_t bytes) {
  const auto gap = std::ranges::find_if(free_, [&](const auto& each) { return each.second >= bytes; });
  if (gap == free_.end()) {
    throw Error(concat("[step] no addresses are left for ", format_bytes(bytes),
                       " of a step that is recorded"));
  }
  const auto [begin, size] = *gap;
  free_.erase(gap);
  if (size > bytes) {
    free_.emplace(begin + bytes, size - bytes);
  }
  return begin;
}

void SpillPool::give_addresses(char* begin, int64_t bytes) {
  auto next = free_.lower_bound(begin);
  if (next != free_.end() && begin + bytes == next->first) {
    bytes += next->second;
    next = free_.erase(next);
  }
  if (next != free_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == begin) {
      before->second += bytes;
      return;
    }
  }
  free_.emplace(begin, bytes);
}

void* SpillPool::answer(size_t bytes) {
  if (static_cast<int64_t>(bytes) < kSmallBytes) {
    return nullptr;
  }
  check();
  char* begin = nullptr;
  {
    const std::lock_guard lock(mutex_);
    const Stopwatch watch(counts_.spent_ns);
    begin = noting_failure([&] { return new_block(whole_pages(static_cast<int64_t>(bytes))); });
    if (self_ == nullptr) {
      self_ = shared_from_this();
    }
  }
  tell();
  return begin;
}

char* SpillPool::new_block(int64_t bytes) {
  make_room(bytes);
  char* const begin = take_addresses(bytes);
  const auto size = static_cast<size_t>(bytes);
  if (mmap(begin, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED) {
    const int error = errno;
    give_addresses(begin, bytes);
    throw Error(concat("[step] the system has no ", format_bytes(bytes),
                       " for a value of the step: ", std::strerror(error)));
  }
  if (bytes >= kHugePage) {
    madvise(begin, size, MADV_HUGEPAGE);
  }
  // Now, so that it does not count as time of the op.
  madvise(begin, size, MADV_POPULATE_WRITE);
  order_.push_back(begin);
  blocks_.emplace(begin, Block{.bytes = bytes, .used_by = uses_, .in_order = std::prev(order_.end())});
  counts_.resident_bytes += bytes;
  counts_.peak_resident_bytes = std::max(counts_.peak_resident_bytes, counts_.resident_bytes);
  return begin;
}

void SpillPool::release(void* address) {
  std::shared_ptr<SpillPool> last;  // lets go of itself after the lock
  const std::lock_guard lock(mutex_);
  const auto found = blocks_.find(static_cast<char*>(address));
  if (found == blocks_.end()) {
    return;
  }
  const Block block = found->second;
  if (block.resident) {
    order_.erase(block.in_order);
  }
  (block.resident ? counts_.resident_bytes : counts_.spilled_bytes) -= block.bytes;
  blocks_.erase(found);
  auto* const begin = static_cast<char*>(address);
  mmap(begin, static_cast<size_t>(block.bytes), PROT_NONE,
       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  if (block.place >= 0) {
    file_->forget(block.place, block.bytes);
  }
  give_addresses(begin, block.bytes);
  if (blocks_.empty()) {
    last = std::move(self_);
  }
}

void SpillPool::evict(char* begin, Block& block) {
  const Stopwatch watch(counts_.write_ns);
  if (file_ == nullptr) {
    file_ = std::make_unique<SpillFile>(folder_);
    lost_pages_.emplace(memory_, static_cast<size_t>(address_bytes_), lost_);
  }
  if (block.place < 0) {
    block.place = file_->new_place(block.bytes);
  }
  file_->put(block.place, begin, block.bytes);
  order_.erase(block.in_order);
  block.resident = false;
  counts_.resident_bytes -= block.bytes;
  counts_.spilled_bytes += block.bytes;
  counts_.written_bytes += block.bytes;
}

// Whatever the current op uses stays; the others go in the order of their last use.
void SpillPool::make_room(int64_t bytes) {
  for (auto next = order_.begin(); next != order_.end() && counts_.resident_bytes + bytes > limit_bytes_;) {
    char* const begin = *next++;
    Block& block = blocks_.at(begin);
    if (block.used_by != uses_) {
      evict(begin, block);
    }
  }
}

void SpillPool::set_limit(int64_t bytes) {
  {
    const std::lock_guard lock(mutex_);
    const Stopwatch watch(counts_.spent_ns);
    limit_bytes_ = bytes;
    ++uses_;  // nothing is in use
    if (failure_.empty()) {
      noting_failure([&] {
        throw_if_lost();
        make_room(0);
      });
    }
  }
  tell();
}

void SpillPool::use(std::span<const void* const> addresses) {
  {
    const std::lock_guard lock(mutex_);
    const Stopwatch watch(counts_.spent_ns);
    if (!failure_.empty()) {
      return;
    }
    noting_failure([&] {
      throw_if_lost();
      bring(addresses);
    });
  }
  tell();
}

void SpillPool::bring(std::span<const void* const> addresses) {
  ++uses_;
  // All of them first, so that none makes room for another.
  std::list<char*> missing;
  for (const void* const address : addresses) {
    const auto found = block_at(address);
    if (found == blocks_.end() || found->second.used_by == uses_) {
      continue;
    }
    Block& block = found->second;
    block.used_by = uses_;
    if (block.resident) {
      order_.splice(order_.end(), order_, block.in_order);
    } else {
      missing.push_back(found->first);
    }
  }
  int loaded = 0;
  for (char* const begin : missing) {
    Block& block = blocks_.at(begin);
    make_room(block.bytes);
    if (counts_.resident_bytes + block.bytes > limit_bytes_ && ++loaded > kAlwaysLoaded) {
      continue;
    }
    file_->load(block.place, begin, block.bytes);
    order_.push_back(begin);
    block.in_order = std::prev(order_.end());
    block.resident = true;
    counts_.spilled_bytes -= block.bytes;
    counts_.resident_bytes += block.bytes;
    counts_.peak_resident_bytes = std::max(counts_.peak_resident_bytes, counts_.resident_bytes);
  }
}

SpillCounts SpillPool::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

}  // namespace remat::detail
