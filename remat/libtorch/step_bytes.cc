// SPDX-License-Identifier: Apache-2.0
// StepRun: the storages of a run, and who gets to see their bytes when.
#include <algorithm>
#include <cstring>

#include "remat/core/error.h"
#include "remat/libtorch/step_run.h"
#include "remat/libtorch/tensor_view.h"

namespace remat::detail {
namespace {

// A tensor that the host made for this step is copied when it is first used, if it is small.
constexpr int64_t kCopiedBytes = 4096;

}  // namespace

// Bytes may be touched freely again.
void StepRun::release() {
  for (RunStorage& storage : storages_) {
    show(storage);
  }
  for (const auto& each : watched_) {
    unwatch(*each);
  }
  watched_.clear();
}

void StepRun::meet(StorageNumber number, c10::StorageImpl* impl) {
  if (index(number) >= storages_.size()) {
    storages_.resize(index(number) + 1);
  }
  RunStorage& storage = storages_[index(number)];
  storage.met = true;
  storage.impl = c10::weak_intrusive_ptr<c10::StorageImpl>(owned(impl));
  number_of_[impl] = number;
}

std::optional<StorageNumber> StepRun::number_of(const c10::StorageImpl* impl) const {
  const auto found = number_of_.find(impl);
  return found == number_of_.end() ? std::nullopt : std::optional(found->second);
}

int64_t StepRun::base_of(StorageNumber number) const {
  if (variant_->trace[number].role != Role::input) {
    return 0;
  }
  const auto impl = storages_[index(number)].impl.lock();
  const auto region = batch_regions_.find(impl.get());
  return region == batch_regions_.end() ? 0 : region->second.base_bytes;
}

// An external is used for the first time: its bytes must be those it has now when the schedule runs.
// What the step writes must be written where it is. Of the rest, what the host is known to change, or
// owns, or made for this step, is copied; whoever asks for a pointer to the others is noticed.
void StepRun::take(StorageNumber number, c10::StorageImpl* impl) {
  RunStorage& storage = storages_[index(number)];
  const SeenStorage& seen = variant_->trace[number];
  storage.taken = true;
  const bool writes = seen.external && seen.external->written;
  const bool new_and_borrowed =
      is_borrowed(impl->data_ptr()) && seen.impl.lock().get() != impl;
  if (!writes && seen.bytes > 0 &&
      (seen.host_writes_later || seen.bytes <= kCopiedBytes || new_and_borrowed)) {
    storage.copied = true;
    storage.bytes = copy_storage(impl->data(), base_of(number), seen.bytes);
    return;
  }
  storage.bytes = c10::Storage(owned(impl));
  if (!impl->has_materializer()) {
    watch(*impl);
    watched_.push_back(owned(impl));
  }
}

// A followed op writes the external: until the schedule has, nobody must see the bytes from before.
void StepRun::hide(StorageNumber number, c10::StorageImpl& impl) {
  RunStorage& storage = storages_[index(number)];
  if (storage.is_hidden || storage.copied || impl.nbytes() == 0) {
    return;
  }
  storage.hidden = std::move(impl._mutable_data_ptr_no_checks());
  storage.is_hidden = true;
  impl.set_data_ptr_noswap(reserve_addresses(static_cast<int64_t>(impl.nbytes())));
  watch(impl);
}

void StepRun::show(RunStorage& storage) {
  if (storage.is_hidden) {
    storage.is_hidden = false;
    c10::StorageImpl& shown = *storage.bytes.unsafeGetStorageImpl();
    unwatch(shown);
    if (in_fault_) {
      give_copy(shown, storage.hidden.get());
      stale_.push_back(std::move(shown._mutable_data_ptr_no_checks()));
    }
    shown.set_data_ptr_noswap(std::move(storage.hidden));
  }
}

const char* StepRun::bytes_of(const RunStorage& storage) const {
  return static_cast<const char*>(storage.is_hidden ? storage.hidden.get() : storage.bytes.data());
}

// Whether the host has left an external alone since it was copied.
bool StepRun::same_as_copy(StorageNumber number) const {
  const RunStorage& storage = storages_[index(number)];
  const auto live = storage.impl.lock();
  if (!storage.copied || live == nullptr) {
    return !storage.copied;
  }
  const int64_t base = base_of(number);
  return std::memcmp(static_cast<const char*>(live->data()) + base, bytes_of(storage) + base,
                     static_cast<size_t>(variant_->trace[number].bytes)) == 0;
}

std::optional<StorageNumber> StepRun::successor_of(StorageNumber number) const {
  for (size_t i = 0; i < variant_->trace.storages.size(); ++i) {
    if (variant_->trace.storages[i].before_host_write == number) {
      return static_cast<StorageNumber>(i);
    }
  }
  return std::nullopt;
}

bool StepRun::access_is_known(const Variant& variant, StorageNumber number) const {
  const size_t next = position_ < variant.program.size() ? variant.program[position_]
                                                         : variant.trace.ops.size();
  for (size_t i = 0; i < next; ++i) {
    const SeenOp& op = variant.trace.ops[i];
    if (op.kind == CallKind::access && op.reads.front() == number) {
      return true;
    }
  }
  return false;
}

// The schedule runs as far as the bytes of a storage that the host wants.
void StepRun::access(StorageNumber number) {
  run_until(*variant_->made.access_of[index(number)]);
}

// Gives the host a copy of a storage's bytes, which is what the storage is from now on.
void StepRun::deliver(OpId op) {
  const auto found = std::ranges::find(variant_->made.access_of, std::optional(op));
  const auto place = static_cast<size_t>(found - variant_->made.access_of.begin());
  const auto number = static_cast<StorageNumber>(place);
  RunStorage& storage = storages_[place];
  const auto impl = storage.impl.lock();
  if (impl == nullptr || !is_followed(*impl) || number_of(impl.get()) != number) {
    return;  // the program has let it go, or has it already
  }
  if (!variant_->trace[number].external) {
    give_copy(*impl, variant_->runner->address_in(op, variant_->made.id_of[place]));
  } else {
    // An external that the step has written: the host goes on with it, ops that still have to read it
    // read a copy.
    show(storage);
    storage.bytes = copy_storage(impl->data(), base_of(number), variant_->trace[number].bytes);
    storage.copied = true;
    variant_->runner->bind(variant_->made.id_of[place],
                           const_cast<char*>(bytes_of(storage)) + base_of(number));
  }
  storage.delivered = true;
  if (const std::optional<StorageNumber> next = successor_of(number)) {
    meet(*next, impl.get());
  }
}

bool StepRun::bytes_wanted_at(const void* address) noexcept {
  for (const RunStorage& storage : storages_) {
    const auto impl = storage.impl.lock();
    if (impl == nullptr || !is_followed(*impl) || !lies_in(*impl, address)) {
      continue;
    }
    void* const claimed = const_cast<void*>(impl->data());
    try {
      in_fault_ = true;
      bytes_wanted(*impl);
    } catch (...) {
      error_ = std::current_exception();  // cannot leave a signal handler: comes out at the next call
    }
    in_fault_ = false;
    if (is_followed(*impl)) {
      try {
        give_copy(*impl, nullptr);
      } catch (...) {
        return false;
      }
    } else if (impl->data() != claimed) {
      // An external is back at its own bytes, which ops have written meanwhile; whoever faulted reads
      // where it seemed to be.
      std::memcpy(claimed, impl->data(), impl->nbytes());
    }
    return true;
  }
  return false;
}

void StepRun::rethrow() {
  if (touched_elsewhere_) {
    throw Error("[step] another thread touches tensors of the step while it runs; expected its ops and "
                "its tensors on one thread: join the thread's work before the step, or pass its "
                "results as part of the batch");
  }
  if (error_ != nullptr) {
    std::rethrow_exception(std::exchange(error_, nullptr));
  }
}

void StepRun::bytes_wanted(c10::StorageImpl& impl) {
  if (recorder_ != nullptr) {
    recorder_->bytes_wanted(impl);
    return;
  }
  const std::optional<StorageNumber> number = number_of(&impl);
  if (!number) {
    return;
  }
  const InterceptPause pause;
  RunStorage& storage = storages_[index(*number)];
  const SeenStorage& seen = variant_->trace[*number];
  if (is_followed(impl)) {
    const bool known =
        access_is_known(*variant_, *number) ||
        switch_variant([&](Variant& other) { return access_is_known(other, *number); });
    if (known) {
      access(*number);
    } else {
      diverge(concat("the host gets at the bytes of ",
                     seen.creator >= 0
                         ? "a result of " + call_text(variant_->trace.ops[static_cast<size_t>(seen.creator)])
                         : seen.name));
      recorder_->host_accessed(*number);
    }
    return;
  }
  // The host may write where the schedule still has to read.
  if (storage.taken && !storage.copied) {
    const int64_t base = base_of(*number);
    storage.bytes = copy_storage(impl.data(), base, seen.bytes);
    storage.copied = true;
    storage.bound = false;
  }
}

}  // namespace remat::detail
