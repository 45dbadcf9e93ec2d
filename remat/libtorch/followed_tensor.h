// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/Storage.h>
#include <c10/core/StorageImpl.h>

#include <cstdint>

// Storages without bytes. A followed tensor is an ordinary tensor over one: it has sizes, strides, a
// version and autograd's history, and whoever wants to touch its bytes is noticed first.
namespace remat::detail {

// Who is asked for bytes on this thread.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  // A pointer to the bytes of a watched storage is about to be handed out. What had none must have
  // them when this returns (give_bytes).
  virtual void bytes_wanted(c10::StorageImpl& storage) = 0;
  // The same for whoever has a pointer already and reads through it: the bytes must then be at the
  // storage's own addresses (give_copy). False if no storage of this source lies there. Called from a
  // signal handler: must not throw.
  virtual bool bytes_wanted_at(const void* address) noexcept = 0;
  // Another thread touches bytes of some step. Called on that thread, maybe from a signal handler.
  virtual void touched_by_another_thread() noexcept = 0;
};

// Makes a source the one of this thread, until the end of the scope.
class ByteSourceGuard {
 public:
  explicit ByteSourceGuard(ByteSource* source);
  ~ByteSourceGuard();
  ByteSourceGuard(const ByteSourceGuard&) = delete;
  ByteSourceGuard& operator=(const ByteSourceGuard&) = delete;

 private:
  ByteSource* previous_;
};

// Addresses for so many bytes, without any.
c10::DataPtr reserve_addresses(int64_t bytes);

// A storage that claims so many bytes and has none.
c10::intrusive_ptr<c10::StorageImpl> make_followed_storage(int64_t bytes);

// Whether it is one that still has no bytes.
bool is_followed(const c10::StorageImpl& storage);

// Whether the address is one of a storage that was made here.
bool lies_in(const c10::StorageImpl& storage, const void* address);

// Makes it an ordinary storage with these bytes.
void give_bytes(c10::StorageImpl& storage, c10::DataPtr bytes);
// The same with a copy of the bytes, at the addresses that the storage claims already: pointers that
// were handed out point to it. Null: with zeros.
void give_copy(c10::StorageImpl& storage, const void* bytes);

// Asks to be told when a pointer to the bytes of an ordinary storage is handed out, once. Storages
// that somebody else watches (copy on write) are left alone.
void watch(c10::StorageImpl& storage);
void unwatch(c10::StorageImpl& storage);

}  // namespace remat::detail
