// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "remat/libtorch/followed_tensor.h"
#include "remat/libtorch/intercept.h"
#include "remat/libtorch/repetition.h"
#include "remat/libtorch/variant.h"

namespace remat::detail {

// Tensors whose names and roles the caller knows. Others are found.
struct KnownTensor {
  at::Tensor tensor;
  std::string name;
  Role role = Role::param;
};

// What one call of a step needs from the step it belongs to.
struct StepContext {
  const StepOptions& options;
  const std::vector<KnownTensor>& known;
  std::vector<std::unique_ptr<Variant>>& variants;
  // Of the storages of a batch only the part that the batch looks at is used.
  bool slices = true;
  // Makes the variant's runner ready to use the arena. Returns the bytes of earlier results that had
  // to be moved out of it.
  std::function<int64_t(Variant&)> use_arena;
  // Plans the variant again, without what failed.
  std::function<void(Variant&, const MoveFailed&)> do_without;
  // Where values of a run lie that is recorded inside a budget; null without one.
  std::function<std::shared_ptr<SpillPool>()> make_pool;
  int64_t ops_expected = 0;  // of a run that is recorded; 0: nobody knows
};

// One call of a step: sees every op of the function. It follows a known variant for as long as the
// program keeps to one; from the first difference on it records a plain run.
//
//   following   op matched ──▶ answered with tensors without bytes
//               read ──▶ the schedule runs as far as the value
//   diverged    what was followed is run for real, in the order of the program, and its bytes are
//               given to the tensors that the program holds; then every op runs as it comes
class StepRun final : public OpInterceptor, public ByteSource {
 public:
  StepRun(const StepContext& context, const Batch& batch);
  ~StepRun() override;

  // Begins to follow the variant used last that could begin like this call; without one, to record.
  void begin();
  // The function has returned: the rest of the schedule runs, outputs get their bytes.
  void end();
  // The function has thrown: tensors are left as a plain run would have left them.
  void abandon() noexcept;
  // The same, but tensors that were there before are as they were then: the step was interrupted. Returns
  // the names of those whose earlier contents are lost.
  std::vector<std::string> undo() noexcept;
  // The op at which the schedule failed, with layer and line; empty if it did not.
  const std::string& failed_op() const { return failed_op_; }

  // The variant that was followed to the end; null if the run was recorded.
  Variant* followed() const { return recorder_ == nullptr ? variant_ : nullptr; }
  Recorder* recorder() { return recorder_.get(); }
  // What a recorded run has left behind gets memory of its own.
  void settle() noexcept;
  // What it takes to run the followed step again, after end().
  Repetition repetition(const Batch& results) const;
  // Where and why the program left the known variants; empty if it did not.
  const std::string& difference() const { return difference_; }

  void intercept(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                 torch::jit::Stack& stack) override;
  void bytes_wanted(c10::StorageImpl& storage) override;
  bool bytes_wanted_at(const void* address) noexcept override;
  void touched_by_another_thread() noexcept override { touched_elsewhere_ = true; }

 private:
  // A storage of this run, under the number it has in the trace.
  struct RunStorage {
    c10::weak_intrusive_ptr<c10::StorageImpl> impl{c10::intrusive_ptr<c10::StorageImpl>()};
    bool met = false;
    // Externals: the bytes to compute with are those of `bytes`, which is the storage itself or, where
    // the host might change it before the schedule runs, a copy.
    bool taken = false;
    bool copied = false;
    bool bound = false;
    bool delivered = false;  // the host has its bytes
    c10::Storage bytes;
    // Externals that a followed op writes: their bytes, while nobody may see them as they still are.
    c10::DataPtr hidden;
    bool is_hidden = false;
  };
  struct Region {
    int64_t base_bytes = 0;
    int64_t bytes = 0;
  };

  bool can_begin(const Variant& variant) const;
  void meet(StorageNumber number, c10::StorageImpl* impl);
  void take(StorageNumber number, c10::StorageImpl* impl);
  void hide(StorageNumber number, c10::StorageImpl& impl);
  void show(RunStorage& storage);
  const char* bytes_of(const RunStorage& storage) const;
  std::optional<StorageNumber> number_of(const c10::StorageImpl* impl) const;
  int64_t base_of(StorageNumber number) const;
  bool same_as_copy(StorageNumber number) const;
  bool can_take_over(const Variant& variant) const;
  void take_over_externals();

  void follow(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack& stack);
  std::string mismatch(const SeenOp& seen, const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                       Values arguments) const;
  std::string tensor_mismatch(const SeenOp& seen, Values arguments) const;
  static void set_number(Variant& variant, size_t trace_index, size_t argument,
                         const c10::IValue& value);
  void accept(SeenOp& seen, size_t trace_index, Values arguments);
  void answer(const SeenOp& seen, torch::jit::Stack& stack, Values read);
  bool answer_read(const SeenOp& seen, size_t trace_index, torch::jit::Stack& stack);
  bool switch_variant(const std::function<bool(Variant&)>& fits);
  void start_runner();
  std::optional<Values> run_until(OpId op);
  void run_schedule(const std::function<void()>& run);
  void access(StorageNumber number);
  void deliver(OpId op);
  std::optional<StorageNumber> successor_of(StorageNumber number) const;
  bool access_is_known(const Variant& variant, StorageNumber number) const;

  void note_generator();
  bool generator_moved() const;
  void rethrow();
  void fail();
  void drop_new_gradients();
  std::string site_text() const;
  void diverge(const std::string& why);
  void begin_recording();
  void repeat_prefix(size_t count);
  void lend_outputs();
  void release();
  size_t next_index() const;

  const StepContext& context_;
  const Batch& batch_;
  Variant* variant_ = nullptr;
  size_t position_ = 0;  // in the variant's program
  std::vector<RunStorage> storages_;
  std::unordered_map<const c10::StorageImpl*, StorageNumber> number_of_;
  std::unordered_map<const c10::StorageImpl*, Region> batch_regions_;
  std::vector<c10::intrusive_ptr<c10::StorageImpl>> watched_;
  std::vector<c10::weak_intrusive_ptr<c10::TensorImpl>> parameters_;  // met in this run
  bool runner_started_ = false;
  bool failed_ = false;
  bool in_fault_ = false;
  std::exception_ptr error_;
  std::atomic<bool> touched_elsewhere_ = false;
  std::vector<c10::DataPtr> stale_;  // addresses that somebody may still read through
  std::optional<GeneratorState> generator_;  // the default one's, as it is while nothing runs
  std::string difference_;
  std::string failed_op_;
  std::unique_ptr<Recorder> recorder_;
  std::unique_ptr<ListenGuard> listen_;
  std::unique_ptr<OtherThreadsLog> others_;
};

}  // namespace remat::detail
