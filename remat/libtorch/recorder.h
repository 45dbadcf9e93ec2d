// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "remat/core/plan.h"
#include "remat/libtorch/allocator.h"
#include "remat/libtorch/host.h"
#include "remat/libtorch/intercept.h"
#include "remat/libtorch/op_values.h"
#include "remat/libtorch/rng.h"
#include "remat/libtorch/scratch.h"
#include "remat/libtorch/spill_pool.h"
#include "remat/libtorch/trace.h"

namespace remat::detail {

struct RecorderOptions {
  const char* verb = "capture";  // that errors begin with
  // The program will be followed: values may be read on the host, and bytes that the host writes
  // between two ops are looked for. Without it both are errors, or unseen.
  bool follows = false;
  bool check_mutation = false;  // see CaptureOptions
  bool check_reuse = false;
  int64_t most_bytes = kNoBudget;  // see CaptureOptions
  const Host* host = nullptr;  // names layers, lines and tensors, if there is one
  // Where the values of the run lie; without one, where LibTorch's allocator puts them.
  std::shared_ptr<SpillPool> pool = {};
  std::function<void()> progress = {};  // after every op
};

// Sees one plain run of a training step, op by op and request by request, and keeps what is needed
// to undo it.
class Recorder final : public OpInterceptor, public AllocationListener {
 public:
  explicit Recorder(RecorderOptions options) : options_(options) {}
  ~Recorder() override { put_back_unless_kept(); }

  // Something that lives before the step, with the name it gets in the graph.
  void add_external(const at::Tensor& tensor, std::string name, Role role, ExternalSource source);
  // As add_external, for the tensors of a batch. With `slices`, of a storage only the part that the
  // batch looks at matters, so that slices of one data set look alike.
  void add_batch(const Batch& batch, bool slices);
  void begin_backward() { phase_ = Phase::backward; }

  void intercept(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                 torch::jit::Stack& stack) override {
    record(op, keys, stack, nullptr);
  }
  // Runs and records a call that another trace has, at the same place of the program.
  void repeat(const SeenOp& known, torch::jit::Stack& stack) {
    record(known.op, known.keys, stack, &known);
  }
  // What another trace knows of the storages that will be met, by number.
  void expect(const Trace* known) { known_ = known; }
  // A parameter, whose gradient may be met.
  void note_parameter(const at::Tensor& parameter);
  // Marks that the host may have touched a storage since an op did last.
  void host_accessed(StorageNumber number);
  // A pointer to the bytes of a storage is handed out, between two ops.
  void bytes_wanted(const c10::StorageImpl& storage);
  // The host has written to a storage, which goes on under another number; `tensor` looks at it.
  void host_wrote(StorageNumber number, const at::Tensor& tensor);
  // The storage is held by another StorageImpl from now on, which has its bytes.
  void rename(StorageNumber number, const c10::intrusive_ptr<c10::StorageImpl>& impl);
  // The function has returned: what is still held of what it made is an output.
  void finish();

  // A tensor that was added, as a window onto its storage.
  SeenView view_of_external(const at::Tensor& tensor) const;
  // A tensor that the step made; an error names `what` otherwise.
  SeenView view_of_result(const at::Tensor& tensor, const std::string& what) const;
  // Whether a tensor that backward gives a gradient lives on after the step.
  bool keeps_gradient_of(const at::Tensor& leaf) const;
  std::optional<StorageNumber> number_of(const c10::StorageImpl* impl) const;

  // Gives externals and generators the contents they had before the run.
  void put_back();
  // Gives them the contents they had before put_back.
  void put_forward();
  // Parameters lose the gradients that the step made.
  void drop_new_gradients();
  // The run is what the program did: it is not undone.
  void keep() { kept_ = true; }
  // Whether put_back gives every external what it held before.
  bool repeatable() const { return repeatable_; }
  // Whether something besides ops moved a generator: a seed was set, a state put back.
  bool generator_moved() const { return generator_moved_; }
  // Whether an op looked beyond the slices that the batch consists of.
  bool uses_more_than_batch() const { return uses_more_than_batch_; }
  // Throws if a tensor that an op of the step made is still held by somebody.
  void check_nothing_left() const;

  // What outlives the recording moves from the pool to memory of its own.
  void settle();
  // Whether values could not be moved to a file, or were lost there: the run is undone.
  bool spill_failed() const;
  // Throws what the pool threw, whoever caught it.
  void check_pool() const;
  // What an external held before the run is lost: it is not put back.
  void lose(StorageNumber number);
  const std::vector<std::string>& lost() const { return lost_; }
  SpillPool* pool() const { return options_.pool.get(); }
  // After put_back(): the first external that does not hold what the run left in it.
  std::optional<StorageNumber> first_change() const;

  Trace trace;
  // By op of the trace: digests of the storages it created, then of those it updated.
  std::vector<std::vector<uint64_t>> digests;
  // By storage: externals, and outputs once finished, so that their bytes stay.
  std::vector<c10::Storage> held;
  const std::vector<std::pair<at::Generator, GeneratorState>>& generators() const {
    return generators_;
  }

 private:
  void record(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack& stack,
              const SeenOp* known);
  void* answer(size_t bytes) override;
  void allocated(void* address, size_t bytes) override;
  void freed(void* address) override;

  Phase phase();
  CallSite call_site(Phase phase);
  std::string external_name(const at::Tensor& tensor, const char* kind, StorageNumber number);
  StorageNumber storage_of(const at::Tensor& tensor);
  StorageNumber add_storage(const at::Tensor& tensor);
  void meet_external(StorageNumber number, const at::Tensor& tensor);
  StorageNumber add_argument(SeenOp& seen, const at::Tensor& tensor, TensorPlace place,
                             bool written, bool shape_only);
  void take_arguments(SeenOp& seen, Values arguments);
  void take_results(SeenOp& seen, Values arguments, Values results);
  void take_digests(const SeenOp& seen);
  void take_as_made(SeenOp& seen, Values results);
  void watch_for_host(Values values, bool on);
  void stop_watching();
  void check_generators();
  void note_generators(bool drew);
  StorageNumber continue_after_host_write(StorageNumber number, const at::Tensor& tensor);
  void insert_access(StorageNumber number);
  void save_before_write(StorageNumber number);
  void save_generator(const SeenOp& seen, Values arguments);
  uint64_t digest_of(StorageNumber number) const;
  void put_back_unless_kept();
  void swap_contents();
  void use_in_pool(Values arguments) const;
  int64_t pool_ns() const;

  RecorderOptions options_;
  const Trace* known_ = nullptr;
  Phase phase_ = Phase::forward;
  bool seen_backward_ = false;
  bool kept_ = false;
  bool is_back_ = false;
  bool repeatable_ = true;
  bool uses_more_than_batch_ = false;
  std::vector<std::string> lost_;  // names of externals
  std::unordered_map<const c10::StorageImpl*, StorageNumber> number_of_;
  std::unordered_map<uint64_t, CallSite> site_of_node_;  // by autograd's sequence number
  std::set<std::string> names_;  // of externals that the host named
  std::vector<std::optional<uint64_t>> digest_;  // by storage: after the op that touched it last
  std::vector<at::Tensor> before_;  // by storage: an external's bytes before the step wrote to it
  std::vector<std::pair<at::Generator, GeneratorState>> generators_;
  std::vector<GeneratorState> last_states_;  // by generator, after the last op
  bool generator_moved_ = false;
  std::vector<const c10::StorageImpl*> gradients_;  // of the parameters met so far
  std::vector<MemoryRequest> requests_;             // of the op that runs
  std::unordered_map<void*, int64_t> live_;
  int64_t live_bytes_ = 0;
  int64_t peak_bytes_ = 0;  // of what was allocated since the start
};

}  // namespace remat::detail
