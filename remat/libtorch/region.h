// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/DimVector.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "remat/libtorch/checkpoint.h"
#include "remat/libtorch/op_log.h"
#include "remat/libtorch/thread_context.h"

namespace remat::detail {

// What is known of the k-th tensor autograd saved in the first run; its data is not kept.
struct SavedTensor {
  c10::DimVector sizes;
  c10::ScalarType dtype = c10::ScalarType::Undefined;
  c10::Device device = c10::Device(c10::kCPU);
  uint64_t digest = 0;              // of the bytes, under DeterminismCheck::bytes
  const std::string* op = nullptr;  // lives in the dispatcher; null outside of any op
  int64_t call = 0;                 // number of the op's call within the region
  bool needed = false;              // backward may still ask for it
};

// A checkpointed region after its first run. The graph's saved tensors own it together; it owns
// nothing that has a history except its inputs, so it dies with the graph.
//
//   first run        node ── hook k ──▶ Region ──▶ inputs, body, op log
//   backward         node ── unpack k ─▶ nothing there? ── re-run the body: saved tensor k of the
//                                        re-run is saved tensor k of the first run
class Region : public std::enable_shared_from_this<Region> {
 public:
  Region(RegionBody body, const std::vector<at::Tensor>& inputs, const CheckpointOptions& options);
  ~Region();

  // `inputs` as given to the constructor.
  void first_run(const std::vector<at::Tensor>& inputs, void* result);

  // The k-th saved tensor, re-running the region if this backward pass has not done so. It is
  // handed out once: then the pass is done with it.
  at::Tensor unpack(size_t index);

  // Called by the first run's hooks when autograd saves, resp. lets go of, a tensor.
  size_t add_saved(const at::Tensor& tensor, bool needed);
  void release(size_t index) noexcept;

 private:
  friend class RerunObserver;
  struct Input;

  // A tensor of a re-run, and its version when autograd saved it.
  struct Recomputed {
    at::Tensor tensor;
    uint32_t version = 0;
  };
  using RecomputedSet = std::unordered_map<size_t, Recomputed>;  // by saved tensor number

  std::vector<at::Tensor> unpack_inputs();
  void check_inputs_unchanged(const std::vector<at::Tensor>& inputs) const;
  RecomputedSet rerun();
  at::Tensor checked(Recomputed recomputed, size_t index) const;
  void forget_pass(int pass);

  RegionBody body_;
  CheckpointOptions options_;
  ThreadContext context_;
  std::vector<Input> inputs_;
  OpLog log_;
  int64_t first_call_ = 0;
  bool complete_ = false;  // the first run is over

  std::mutex mutex_;  // guards what follows: several threads may run backward
  std::vector<SavedTensor> saved_;
  std::unordered_map<int, RecomputedSet>
      recomputed_;  // by the engine's number of the backward pass
};

}  // namespace remat::detail
