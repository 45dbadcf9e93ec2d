// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/StorageImpl.h>

#include <string>
#include <unordered_map>
#include <vector>

#include "remat/libtorch/allocator.h"
#include "remat/libtorch/intercept.h"
#include "remat/libtorch/rng.h"
#include "remat/libtorch/tape.h"

namespace remat::detail {

// A storage that one run of the step touched. Storages are numbered as they are met.
struct SeenStorage {
  // Keeps the address of the StorageImpl from being used again, not its bytes.
  c10::weak_intrusive_ptr<c10::StorageImpl> impl;
  int64_t bytes = 0;
  Role role = Role::temporary;
  std::optional<ExternalSource> external = {};  // none: made by the op `creator`
  std::string name = {};                        // externals
  int32_t creator = -1;
  bool uninitialised = false;  // made by empty() and not written since
  at::Tensor before = {};      // externals: the bytes before the step first wrote to it
};

// One op of a run, with storages by number where a TensorView has a StorageId.
struct SeenOp {
  TapeOp call;
  Phase phase = Phase::forward;
  std::string scope = {};
  std::vector<int32_t> reads = {}, updates = {}, creates = {}, effects = {};  // storages, each once
  std::vector<TensorView> created = {};  // the results that own `creates`
  int64_t workspace_bytes = 0;
  bool random = false;
  bool once = false;
  bool dropped = false;  // found to be needless later
};

// Debug modes: see CaptureOptions.
struct RecorderChecks {
  bool mutation = false;
  bool reuse = false;
};

// Sees one run of a training step, op by op and request by request.
class Recorder final : public OpInterceptor, public AllocationListener {
 public:
  explicit Recorder(RecorderChecks checks) : checks_(checks) {}
  ~Recorder() override { put_back(); }

  void add_external(const at::Tensor& tensor, std::string name, Role role, ExternalSource source);
  void begin_backward() { phase_ = Phase::backward; }

  // A tensor that was added, as a window onto its storage.
  TensorView view_of_external(const at::Tensor& tensor) const;
  // A tensor that the step made; an error names `what` otherwise.
  TensorView view_of_result(const at::Tensor& tensor, const std::string& what) const;
  // Whether a tensor that backward gives a gradient lives on after the step.
  bool keeps_gradient_of(const at::Tensor& leaf) const;
  // Gives externals and generators the contents they had before the run.
  void put_back();
  // Throws if a tensor that an op of the step made is still held by somebody.
  void check_nothing_left() const;

  std::vector<SeenStorage> storages;
  std::vector<SeenOp> ops;
  int64_t peak_bytes = 0;  // of what was allocated since the start

 private:
  struct Request {
    void* address = nullptr;
    int64_t bytes = 0;
    bool frees = false;
  };

  void intercept(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                 torch::jit::Stack& stack) override;
  void* answer(size_t) override { return nullptr; }
  void allocated(void* address, size_t bytes) override;
  void freed(void* address) override;

  std::string layer();
  int32_t storage_of(const at::Tensor& tensor);
  int32_t add_storage(const at::Tensor& tensor);
  void add_argument(SeenOp& seen, const at::Tensor& tensor, TensorPlace place, bool written);
  void take_arguments(SeenOp& seen, const torch::jit::Stack& stack);
  void take_results(SeenOp& seen, const torch::jit::Stack& stack);
  void take_requests(SeenOp& seen);
  void take_for_constant(SeenStorage& storage, int32_t number, const at::Tensor& tensor);
  void save_before_write(int32_t storage);
  void save_generator(const SeenOp& seen, const torch::jit::Stack& stack);

  RecorderChecks checks_;
  Phase phase_ = Phase::forward;
  std::unordered_map<const c10::StorageImpl*, int32_t> number_of_;
  std::unordered_map<uint64_t, std::string> scope_of_node_;  // by autograd's sequence number
  std::vector<std::pair<at::Generator, GeneratorState>> generators_;
  std::vector<Request> requests_;  // of the op that runs
  std::unordered_map<void*, int64_t> live_;
  int64_t live_bytes_ = 0;
};

}  // namespace remat::detail
