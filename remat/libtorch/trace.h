// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/StorageImpl.h>

#include <optional>
#include <string>
#include <vector>

#include "remat/libtorch/tape.h"

// One course of a program: every call that it made below autograd, in the order of the program, with
// the storages that the calls touched. A Trace is what a later run of the program is matched
// against; the graph and the tape are made from it (recording_graph.h).
namespace remat::detail {

// Storages of a trace, numbered as they are met: as one run meets them in the same order as
// another, the numbers of the two agree. Not the graph's StorageId, which counts externals first.
enum class StorageNumber : int32_t {};
constexpr size_t index(StorageNumber number) { return static_cast<size_t>(number); }

struct SeenView : Window {
  StorageNumber storage{};
  bool operator==(const SeenView&) const = default;
};

struct SeenTensor {
  TensorPlace place;
  SeenView view;
  bool shape_only = false;
  bool operator==(const SeenTensor&) const = default;
};

// A tensor that a call returned.
struct SeenResult {
  TensorPlace place;
  SeenView view;
  // The argument that was returned itself (add_ returns self); none: another tensor.
  std::optional<TensorPlace> argument = {};
};

enum class CallKind : uint8_t {
  op,        // computes: a kernel runs
  view,      // its results look at storages that were there: no kernel is needed
  metadata,  // changes or reads sizes and strides only: run as it is (unsqueeze_, is_same_size)
  made,      // makes a tensor that the host fills: run as it is (empty)
  read,      // a guard: gives the host a value, or a tensor whose shape depends on values
  access,    // a guard, not called by the program: the host gets at the bytes of a storage
};

// A storage that one run of the step touched.
struct SeenStorage {
  // Keeps the address of the StorageImpl from being used again, not its bytes.
  c10::weak_intrusive_ptr<c10::StorageImpl> impl;
  int64_t bytes = 0;
  Role role = Role::temporary;
  std::optional<ExternalSource> external = {};  // none: made by the op `creator`
  std::string name = {};                        // externals
  int32_t creator = -1;
  int32_t last_touch = -1;     // the op that read or wrote it last
  bool uninitialised = false;  // made by empty() and not written since
  // The host wrote this storage: it goes on as another number, whose bytes are the host's.
  std::optional<StorageNumber> before_host_write = {};
  bool host_writes_later = false;
  bool borrowed = false;  // the host owns its bytes (from_blob)
  bool output = false;  // made by the step and still held when the function returned
  int64_t base_bytes = 0;  // where the part that matters begins: a batch may be a slice
};

struct SeenOp {
  c10::OperatorHandle op;
  c10::DispatchKeySet keys = {};
  bool grad_mode = false;
  bool inference_mode = false;
  CallKind kind = CallKind::op;
  Phase phase = Phase::forward;
  std::string scope = {};
  std::string line = {};  // of the program, where the host knows it
  std::vector<c10::IValue> arguments = {};  // undefined where tensors go
  std::vector<SeenTensor> tensors = {};
  std::vector<c10::IValue> outcome = {};    // what it returned, undefined where tensors go
  std::vector<SeenResult> results = {};
  // Storages, each once.
  std::vector<StorageNumber> reads = {}, updates = {}, creates = {}, effects = {};
  std::vector<SeenResult> created = {};      // the results that own `creates`
  std::vector<Allocation> allocations = {};  // see TapeOp
  int64_t workspace_bytes = 0;
  int64_t time_ns = 0;  // of the plain run
  bool random = false;
  bool once = false;
  bool dropped = false;  // found to be needless later

  // Whether it belongs into the graph.
  bool computes() const { return !dropped && (kind == CallKind::op || guards()); }
  bool guards() const { return kind == CallKind::read || kind == CallKind::access; }
};

struct Trace {
  std::vector<SeenStorage> storages;
  std::vector<SeenOp> ops;
  int threads = 0;               // at::get_num_threads() while it was recorded
  int64_t eager_peak_bytes = 0;  // of the plain run: externals and everything allocated

  SeenStorage& operator[](StorageNumber number) { return storages[index(number)]; }
  const SeenStorage& operator[](StorageNumber number) const { return storages[index(number)]; }
};

// The window of a tensor whose storage's part of interest begins at `base_bytes`.
SeenView seen_view(const at::Tensor& tensor, StorageNumber storage, int64_t base_bytes = 0);

// The op that stands for an access of the host to the bytes of a storage, so that schedules know it:
// "remat::host_access". Its kernel does nothing.
const c10::OperatorHandle& host_access_op();

// "aten::mm (layer fc, train.py:12)", for messages.
std::string call_text(const SeenOp& op);

// A number from a block of bytes: equal bytes, equal digests.
uint64_t digest(const void* bytes, size_t count);

}  // namespace remat::detail
