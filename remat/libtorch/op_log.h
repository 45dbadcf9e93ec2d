// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>
#include <c10/util/SmallVector.h>

#include <cstdint>
#include <mutex>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "remat/libtorch/intercept.h"
#include "remat/libtorch/policy.h"
#include "remat/libtorch/rng.h"

// What makes running a region twice the same as running it once. The first run logs, below
// autograd, everything an op reads or changes beyond its arguments' graph; a re-run is then a pure
// function of the region's inputs:
//
//   first run                              re-run
//   draws from a generator        ──▶      the same numbers, from a private generator
//   changes a tensor that was     ──▶      works on a copy with the contents it had before the
//   there before (BatchNorm's              region, so that reads are those of the first run and the
//   statistics, a counter)                 tensor itself is left alone
//   reads a tensor that was there ──▶      finds it unchanged, or fails
//   results the policy keeps      ──▶      are taken, the op is not run
namespace remat::detail {

// The results of one op that the policy keeps. Tensors are held without their autograd history:
// with it the graph would own itself.
struct KeptResults {
  const void* schema = nullptr;  // identifies the op
  std::vector<c10::IValue> results;
  // The tensors in results and what hides that it is a view of one of them, with the versions they
  // had: a change through any of them makes the results useless.
  std::vector<std::pair<at::Tensor, uint32_t>> watched;
  int64_t next_op = 0;  // where the first run's counts stood after the op
  int64_t next_draw = 0;
};

// A storage from outside the region that the region changes. The weak reference keeps the address
// from being reused, so that the same address in a re-run is the same storage.
struct OutsideStorage {
  c10::weak_intrusive_ptr<c10::StorageImpl> storage;
  at::Tensor contents_before;  // bytes
};

// A storage from outside the region that the region only reads. Each alias has a version count of
// its own: these are the counts that were seen.
struct ReadStorage {
  c10::weak_intrusive_ptr<c10::StorageImpl> storage;
  c10::SmallVector<uint32_t, 2> versions;
};

struct OpLog {
  DrawLog draws;
  std::unordered_map<const c10::StorageImpl*, OutsideStorage> outside;
  std::unordered_map<const c10::StorageImpl*, ReadStorage> reads;
  std::unordered_map<int64_t, KeptResults> kept;  // by op number
  bool keeps = false;                             // the first run kept something
  std::mutex mutex;                               // guards kept: two backward passes may take
};

// A tensor that the region reads was changed between its runs.
[[noreturn]] void throw_changed(const at::Tensor& tensor, uint32_t version_before);

class FirstRun;
class Rerun;

// One execution of a region on a thread. Runs nest: a call is logged by every first run around it,
// out to the innermost re-run, which answers it.
class OpRun : public OpInterceptor {
 public:
  void intercept(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                 torch::jit::Stack& stack) final;

 protected:
  OpRun();
  ~OpRun() override;

  virtual FirstRun* as_first_run() { return nullptr; }
  virtual Rerun* as_rerun() { return nullptr; }

 private:
  OpRun* enclosing_;
};

class FirstRun final : public OpRun {
 public:
  FirstRun(OpLog& log, const Policy& policy) : log_(log), policy_(policy) {}

  // Before the op runs. Returns its number.
  int64_t begin_op(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> arguments, bool& keep);
  void log_writes(const std::vector<int>& written, c10::ArrayRef<c10::IValue> arguments);
  // After it ran, or after an enclosing re-run answered in its place.
  void end_op(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> results, int64_t number,
              bool keep);
  DrawLog& draws() { return log_.draws; }

 private:
  void log_reads(c10::ArrayRef<c10::IValue> arguments);
  void keep_results(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> results,
                    int64_t number);
  FirstRun* as_first_run() override { return this; }

  OpLog& log_;
  const Policy& policy_;
  int64_t ops_ = 0;
  std::unordered_set<const c10::StorageImpl*> created_;
  std::unordered_map<const c10::StorageImpl*, int64_t> kept_in_;  // op number by storage
};

class Rerun final : public OpRun {
 public:
  explicit Rerun(OpLog& log) : log_(log), draws_(log.draws) {}
  ~Rerun() override;

  // A trial run: there was no first run. Everything that exists already counts as outside and stays
  // as it is, and draws continue from the generators' present states.
  static Rerun trial(OpLog& empty_log) { return Rerun(empty_log, true); }

  // Puts kept results on the stack in place of the arguments. False if there are none.
  bool take_kept(const c10::OperatorHandle& op, torch::jit::Stack& stack);
  // Throws where an argument from outside has changed since the first run.
  void check_reads(c10::ArrayRef<c10::IValue> arguments) const;
  // Puts copies in the place of arguments whose storage the region changes; returns what it did as
  // pairs (copy, original).
  using Redirections = std::vector<std::pair<at::Tensor, at::Tensor>>;
  Redirections redirect(const std::vector<int>& written, c10::ArrayRef<c10::IValue> arguments);
  // An in-place op returns its argument: the program must get the original.
  static void redirect_back(const Redirections& redirections, c10::ArrayRef<c10::IValue> results);
  void end_op(bool fresh_results, c10::ArrayRef<c10::IValue> results);
  DrawReplay& draws() { return draws_; }

  // For trial runs: the tensor is a result of one of its ops, not something that was there before.
  bool created(const at::Tensor& tensor) const;

 private:
  Rerun(OpLog& log, bool is_trial) : log_(log), draws_(log.draws), is_trial_(is_trial) {}
  Rerun* as_rerun() override { return this; }
  const at::Tensor* copy_of(const at::Tensor& tensor);
  void add_trial_copies(const std::vector<int>& written, c10::ArrayRef<c10::IValue> arguments);

  OpLog& log_;
  DrawReplay draws_;
  bool is_trial_ = false;
  int64_t ops_ = 0;
  std::unordered_map<const c10::StorageImpl*, at::Tensor> copies_;  // bytes
  std::unordered_set<const c10::StorageImpl*> created_;             // trial runs only
  std::vector<std::pair<at::Tensor, uint32_t>> versions_;  // outside tensors, as the run found them
};

}  // namespace remat::detail
