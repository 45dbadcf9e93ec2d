// SPDX-License-Identifier: Apache-2.0
// Recorder: the run undone and done again.
#include <algorithm>
#include <array>
#include <cstring>
#include <mutex>

#include "remat/libtorch/recorder.h"

namespace remat::detail {

void Recorder::put_back() {
  if (!is_back_) {
    swap_contents();
    is_back_ = true;
  }
}

void Recorder::put_forward() {
  if (is_back_) {
    swap_contents();
    is_back_ = false;
  }
}

void Recorder::swap_contents() {
  for (size_t i = 0; i < trace.storages.size(); ++i) {
    if (before_[i].defined()) {
      auto* current = static_cast<char*>(held[i].mutable_data()) + trace.storages[i].base_bytes;
      auto* other = static_cast<char*>(before_[i].mutable_data_ptr());
      if (pool() != nullptr && !pool()->use_or_read(other)) {
        lose(static_cast<StorageNumber>(i));
        continue;
      }
      std::swap_ranges(current, current + trace.storages[i].bytes, other);
    }
  }
  for (auto& [generator, state] : generators_) {
    const std::lock_guard lock(generator.mutex());
    const GeneratorState current = GeneratorState::of(generator);
    state.restore(generator);
    state = current;
  }
}

void Recorder::lose(StorageNumber number) {
  before_[index(number)].reset();
  lost_.push_back(trace[number].name);
}

void Recorder::put_back_unless_kept() {
  stop_watching();
  if (!kept_) {
    put_back();
  }
}

std::optional<StorageNumber> Recorder::first_change() const {
  for (size_t i = 0; i < trace.storages.size(); ++i) {
    if (!before_[i].defined() || trace.storages[i].borrowed) {
      continue;
    }
    use_in_pool(std::array{c10::IValue(before_[i])});
    const auto* now = static_cast<const char*>(held[i].data()) + trace.storages[i].base_bytes;
    if (std::memcmp(now, before_[i].const_data_ptr(), static_cast<size_t>(trace.storages[i].bytes)) != 0) {
      return static_cast<StorageNumber>(i);
    }
  }
  return std::nullopt;
}

}  // namespace remat::detail
