// SPDX-License-Identifier: Apache-2.0
// Step: where the values of a call go that is recorded inside a budget.
#include <algorithm>

#include "remat/core/error.h"
#include "remat/libtorch/device.h"
#include "remat/libtorch/step_implementation.h"

namespace remat {

using detail::concat;

namespace {

// Of the memory that is left, what a recorded step may take; and of its budget, at least a quarter, however
// much the process has besides.
constexpr double kShareOfAvailable = 0.9;
constexpr int64_t kLeastOfBudget = 4;
constexpr double kSlowBytesPerSecond = 100e6;  // a disk that is worth a notice

// What a recorded run of a known course has in the pool at its fullest: what it makes, and copies of what it
// writes.
int64_t pool_bytes_of(const detail::Trace& trace) {
  int64_t bytes = trace.eager_peak_bytes;
  for (const detail::SeenStorage& storage : trace.storages) {
    if (storage.external) {
      bytes += storage.external->written ? 0 : -storage.bytes;
    }
  }
  return bytes;
}

}  // namespace

// Of the courses that are known the one that needs most; 0: nobody knows.
int64_t Step::Implementation::expected_pool_bytes() const {
  int64_t most = 0;
  for (const detail::Trace& trace : seen_once_) {
    most = std::max(most, pool_bytes_of(trace));
  }
  for (const auto& variant : variants_) {
    most = std::max(most, pool_bytes_of(variant->trace));
  }
  return most;
}

// Everything that the process has in memory since the library was loaded counts while a step is recorded:
// nobody knows yet what of it belongs to the step.
std::shared_ptr<detail::SpillPool> Step::Implementation::make_pool() {
  const bool has_budget = options_.budget_of || options_.budget_bytes != kNoBudget;
  if (!has_budget) {
    return nullptr;
  }
  detail::Device& device = detail::cpu_device();
  if (arena_ != nullptr) {
    arena_->reclaim();
    arena_->use_only(0);
  }
  auto limit_bytes = static_cast<int64_t>(kShareOfAvailable * static_cast<double>(device.available_bytes()));
  if (!options_.budget_of) {
    const int64_t budget_bytes = std::min(options_.budget_bytes, memory_limit_.value_or(kNoBudget));
    const int64_t left = budget_bytes - device.resident_bytes();
    limit_bytes = std::min(limit_bytes, std::max(left, budget_bytes / kLeastOfBudget));
  }
  const std::string folder =
      options_.spill_folder.empty() ? detail::default_spill_folder() : options_.spill_folder;
  const int64_t expected = expected_pool_bytes();
  if (expected > limit_bytes) {
    warn_of_folder(folder, expected - limit_bytes);
  }
  detail::SpillWatch watch;
  if (expected == 0) {
    // How much will be moved nobody knows; a disk with less room than there is in memory is worth a notice.
    watch.first_spill = [this, folder, limit_bytes] { warn_of_folder(folder, limit_bytes); };
  }
  watch.timed = [this](const detail::SpillCounts& counts) { warn_of_slow_disk(counts); };
  return detail::SpillPool::make(folder, limit_bytes, std::move(watch));
}

void Step::Implementation::warn_of_folder(const std::string& folder, int64_t needed_bytes) const {
  const std::optional<detail::SpillRoom> room = detail::spill_room(folder);
  std::string why = room && room->is_memory ? "lies in memory itself" : "";
  if (room && room->free_bytes < needed_bytes) {
    why += concat(why.empty() ? "" : " and ", "has only ", format_bytes(room->free_bytes), " left, where about ",
                  format_bytes(needed_bytes), " are expected");
  }
  if (!why.empty()) {
    say(concat("values of a step that does not fit into the budget while it is recorded go to a file in '", folder,
               "', which ", why, "; set spill_folder to another one"));
  }
}

void Step::Implementation::warn_of_slow_disk(const detail::SpillCounts& counts) const {
  const double seconds = static_cast<double>(counts.write_ns) / 1e9;
  const double bytes_per_second = static_cast<double>(counts.written_bytes) / seconds;
  if (bytes_per_second < kSlowBytesPerSecond) {
    say(concat("the disk is slow: the first ", format_bytes(counts.written_bytes),
               " of the values that do not fit into the budget while the step is recorded took ", seconds,
               " s to be moved to a file; set spill_folder to a faster one, or use save_plan so that the next process "
               "need not record like this"));
  }
}

}  // namespace remat
