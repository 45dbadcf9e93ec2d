// SPDX-License-Identifier: Apache-2.0
#include "remat/libtorch/region.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <cstring>
#include <sstream>
#include <utility>

#include "remat/core/error.h"
#include "remat/libtorch/capturing.h"
#include "remat/libtorch/saved_hooks.h"

namespace remat::detail {
namespace {

using torch::autograd::SavedVariable;
using torch::autograd::SavedVariableHooks;

// Sensitive to order and position: each word is mixed before the next is added.
uint64_t digest_of(const at::Tensor& tensor) {
  InterceptPause pause;
  const at::Tensor dense = tensor.layout() == at::kStrided ? tensor : tensor.to_dense();
  const at::Tensor bytes = dense.detach().contiguous().cpu();
  const auto* data = static_cast<const unsigned char*>(bytes.const_data_ptr());
  const size_t size = bytes.nbytes();
  uint64_t digest = 0x9e3779b97f4a7c15ULL ^ size;
  for (size_t at = 0; at < size; at += sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, data + at, std::min(sizeof(uint64_t), size - at));
    digest = (digest ^ word) * 0xff51afd7ed558ccdULL;
    digest ^= digest >> 32;
  }
  return digest;
}

SavedTensor describe(const at::Tensor& tensor, int64_t first_call, DeterminismCheck check) {
  SavedTensor saved;
  saved.sizes = tensor.sizes();
  saved.dtype = tensor.scalar_type();
  saved.device = tensor.device();
  const CurrentCall call = current_call();
  if (call.op != nullptr) {
    saved.op = &call.op->schema().name();
    saved.call = call.number - first_call;
  }
  if (check == DeterminismCheck::bytes) {
    saved.digest = digest_of(tensor);
  }
  return saved;
}

std::string to_text(const SavedTensor& saved) {
  std::ostringstream out;
  out << saved.dtype << at::IntArrayRef(saved.sizes) << " on " << saved.device << " in ";
  if (saved.op != nullptr) {
    out << *saved.op << " (call " << saved.call << ")";
  } else {
    out << "no op (input of a nested checkpoint, or a custom autograd function)";
  }
  return out.str();
}

bool same_description(const SavedTensor& a, const SavedTensor& b) {
  return a.sizes == b.sizes && a.dtype == b.dtype && a.device == b.device;
}

constexpr const char* kBeDeterministic =
    "; fn must do the same each time it is called: look for state that it changes or reads outside "
    "of tensors, and for branches on such state";

// A parameter, or a view of one. It is there anyway, so it is held instead of being recomputed,
// and an optimizer step between forward and backward is noticed as it is without checkpoints.
bool is_parameter(const at::Tensor& tensor) {
  const at::TensorBase& owner = tensor.is_view() ? tensor._base() : tensor;
  return owner.is_leaf() && owner.requires_grad();
}

// In the place of a tensor saved in the first run.
class FirstRunHook final : public SavedVariableHooks {
 public:
  explicit FirstRunHook(std::shared_ptr<Region> region) : region_(std::move(region)) {}

  ~FirstRunHook() override {
    if (packed_) {
      region_->release(index_);
    }
  }

  void call_pack_hook(const at::Tensor& tensor) override {
    if (is_parameter(tensor)) {
      parameter_ = tensor.tensor_data();
      version_ = tensor._version();
    }
    index_ = region_->add_saved(tensor, /*needed=*/!parameter_.defined());
    packed_ = true;
  }

  at::Tensor call_unpack_hook() override {
    if (!parameter_.defined()) {
      return region_->unpack(index_);
    }
    if (static_cast<uint32_t>(parameter_._version()) != version_) {
      throw_changed(parameter_, version_);
    }
    return parameter_;
  }

 private:
  std::shared_ptr<Region> region_;
  size_t index_ = 0;
  bool packed_ = false;
  at::Tensor parameter_;
  uint32_t version_ = 0;
};

class FirstRunObserver final : public SavedTensorObserver {
 public:
  explicit FirstRunObserver(std::shared_ptr<Region> region) : region_(std::move(region)) {}
  std::unique_ptr<SavedVariableHooks> make_hooks() override {
    return std::make_unique<FirstRunHook>(region_);
  }

 private:
  std::shared_ptr<Region> region_;
};

}  // namespace

struct Region::Input {
  SavedVariable saved;   // passes through the hooks of an enclosing region, if there is one
  at::Tensor inference;  // instead, where autograd refuses to save
  uint32_t version = 0;
  bool requires_grad = false;
};

// Collects what autograd saves in a re-run.
class RerunObserver final : public SavedTensorObserver {
 public:
  explicit RerunObserver(Region& region) : region_(region), first_call_(calls_seen()) {
    std::lock_guard<std::mutex> lock(region_.mutex_);
    expected_ = region_.saved_.size();
    for (size_t i = 0; i < expected_; ++i) {
      if (region_.saved_[i].needed) {
        last_needed_ = i;
      }
    }
  }

  std::unique_ptr<SavedVariableHooks> make_hooks() override;

  void add(const at::Tensor& tensor) {
    const size_t index = seen_++;
    if (stopped_) {
      return;
    }
    if (index >= expected_) {
      fail_on_extra(tensor);
      return;
    }
    check(tensor, index);
    std::unique_lock<std::mutex> lock(region_.mutex_);
    if (region_.saved_[index].needed) {
      recomputed_[index] = {tensor.tensor_data(), static_cast<uint32_t>(tensor._version())};
    }
    lock.unlock();
    // Inside an unfinished first run (fn itself calls backward) the rest must not run again.
    if (index == last_needed_ && (region_.options_.early_stop || !region_.complete_)) {
      stopped_ = true;
      leave_current_call(this);
    }
  }

  // fn came to its end.
  void finish() const {
    if (!stopped_ && seen_ < expected_ &&
        (region_.options_.determinism != DeterminismCheck::none || seen_ <= last_needed_)) {
      throw Error(concat("[checkpoint] the re-run saved ", seen_, " tensors and the first run ",
                         expected_, "; the first one missing is saved tensor ", seen_, ", ",
                         to_text(region_.saved_[seen_]), kBeDeterministic));
    }
  }

  // Everything that is needed is there.
  bool stopped() const { return stopped_; }

  Region::RecomputedSet take() { return std::move(recomputed_); }

 private:
  void check(const at::Tensor& tensor, size_t index) const {
    const DeterminismCheck level = region_.options_.determinism;
    if (level == DeterminismCheck::none) {
      return;
    }
    const SavedTensor now = describe(tensor, first_call_, level);
    const SavedTensor& then = region_.saved_[index];
    const char* difference = !same_description(now, then) ? "another shape, type or device"
                             : now.digest != then.digest  ? "other bytes"
                                                          : nullptr;
    if (difference != nullptr) {
      throw Error(concat("[checkpoint] saved tensor ", index, " of the re-run has ", difference,
                         ": ", to_text(now), ", while the first run saved ", to_text(then),
                         kBeDeterministic));
    }
  }

  void fail_on_extra(const at::Tensor& tensor) const {
    if (region_.complete_ && region_.options_.determinism != DeterminismCheck::none) {
      throw Error(concat(
          "[checkpoint] the re-run saved more than the ", expected_, " tensors of the first run: ",
          to_text(describe(tensor, first_call_, DeterminismCheck::shapes)), kBeDeterministic));
    }
  }

  Region& region_;
  int64_t first_call_;
  size_t expected_ = 0;
  size_t last_needed_ = 0;
  size_t seen_ = 0;
  bool stopped_ = false;
  Region::RecomputedSet recomputed_;
};

namespace {

// In the place of a tensor saved in a re-run. The graph of a re-run is thrown away, but fn may call
// backward on a part of it, so the tensor is held as long as that graph.
class RerunHook final : public SavedVariableHooks {
 public:
  explicit RerunHook(RerunObserver* observer) : observer_(observer) {}

  void call_pack_hook(const at::Tensor& tensor) override {
    tensor_ = tensor.tensor_data();
    observer_->add(tensor);
  }
  at::Tensor call_unpack_hook() override { return tensor_; }

 private:
  RerunObserver* observer_;  // used only when packing, which is at once
  at::Tensor tensor_;
};

}  // namespace

std::unique_ptr<SavedVariableHooks> RerunObserver::make_hooks() {
  return std::make_unique<RerunHook>(this);
}

Region::Region(RegionBody body, const std::vector<at::Tensor>& inputs,
               const CheckpointOptions& options)
    : body_(std::move(body)),
      options_(options),
      context_(ThreadContext::capture(inputs.empty() || !inputs.front().defined()
                                          ? c10::kCPU
                                          : inputs.front().device().type())) {
  inputs_.reserve(inputs.size());
  for (const at::Tensor& tensor : inputs) {
    Input input;
    if (tensor.defined() && tensor.is_inference()) {
      input.inference = tensor;
    } else if (tensor.defined()) {
      input.saved = SavedVariable(tensor, /*is_output=*/false);
      input.version = tensor._version();
      input.requires_grad = tensor.requires_grad();
    }
    inputs_.push_back(std::move(input));
  }
}

Region::~Region() = default;

void Region::first_run(const std::vector<at::Tensor>& inputs, void* result) {
  FirstRunObserver observer(shared_from_this());
  FirstRun run(log_, options_.policy);
  const SavedTensorGuard saved(&observer);
  const InterceptGuard intercept(&run);
  first_call_ = calls_seen();
  body_(inputs, result);
  log_.draws.close();
  complete_ = true;
  check_inputs_unchanged(inputs);
}

void Region::check_inputs_unchanged(const std::vector<at::Tensor>& inputs) const {
  for (size_t i = 0; i < inputs.size(); ++i) {
    const at::Tensor& tensor = inputs[i];
    if (tensor.defined() && !tensor.is_inference() &&
        static_cast<uint32_t>(tensor._version()) != inputs_[i].version) {
      throw Error(concat("[checkpoint] fn changed its input ", i,
                         " in place; a re-run would start from the changed values: let fn work on "
                         "a clone, or use the out-of-place op"));
    }
  }
}

size_t Region::add_saved(const at::Tensor& tensor, bool needed) {
  SavedTensor saved = describe(tensor, first_call_, options_.determinism);
  saved.needed = needed;
  std::lock_guard<std::mutex> lock(mutex_);
  saved_.push_back(std::move(saved));
  return saved_.size() - 1;
}

void Region::release(size_t index) noexcept {
  std::lock_guard<std::mutex> lock(mutex_);
  saved_[index].needed = false;
  for (auto& [pass, recomputed] : recomputed_) {
    recomputed.erase(index);
  }
}

at::Tensor Region::unpack(size_t index) {
  const int pass = torch::autograd::get_current_graph_task_id();
  {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto found = recomputed_.find(pass);
    if (found != recomputed_.end()) {
      if (auto entry = found->second.extract(index)) {
        return checked(std::move(entry.mapped()), index);
      }
    }
  }
  RecomputedSet recomputed = rerun();
  auto wanted = recomputed.extract(index);
  REMAT_ASSERT(!wanted.empty());
  if (pass >= 0 && !recomputed.empty()) {
    // What this pass does not use, because only some gradients were asked for, goes with its end.
    torch::autograd::Engine::get_default_engine().queue_callback([weak = weak_from_this(), pass] {
      if (const std::shared_ptr<Region> region = weak.lock()) {
        region->forget_pass(pass);
      }
    });
    std::lock_guard<std::mutex> lock(mutex_);
    recomputed_[pass] = std::move(recomputed);
  }
  return checked(std::move(wanted.mapped()), index);
}

// Without hooks autograd makes this check itself.
at::Tensor Region::checked(Recomputed recomputed, size_t index) const {
  if (static_cast<uint32_t>(recomputed.tensor._version()) != recomputed.version) {
    throw Error(concat("[checkpoint] ", to_text(saved_[index]),
                       " was saved for backward and then changed in place inside the region; use "
                       "the out-of-place op"));
  }
  return std::move(recomputed.tensor);
}

void Region::forget_pass(int pass) {
  std::lock_guard<std::mutex> lock(mutex_);
  recomputed_.erase(pass);
}

std::vector<at::Tensor> Region::unpack_inputs() {
  std::vector<at::Tensor> tensors;
  tensors.reserve(inputs_.size());
  for (size_t i = 0; i < inputs_.size(); ++i) {
    const Input& input = inputs_[i];
    at::Tensor tensor = input.inference;
    try {
      if (!tensor.defined()) {
        tensor = input.saved.unpack();
      }
    } catch (const c10::Error& error) {
      if (input.saved.has_hooks()) {
        throw;  // from the re-run of the enclosing region
      }
      throw Error(concat("[checkpoint] input ", i,
                         " cannot be used for the re-run: ", error.what_without_backtrace(),
                         "; leave the inputs of a region unchanged until backward is done"));
    }
    if (tensor.defined() && !tensor.is_inference()) {
      tensor = tensor.tensor_data();
      tensor.set_requires_grad(input.requires_grad);
    }
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

Region::RecomputedSet Region::rerun() {
  const std::vector<at::Tensor> inputs = unpack_inputs();
  const ThreadContextGuard context(context_);
  RerunObserver observer(*this);
  Rerun run(log_);
  const SavedTensorGuard saved(&observer);
  const InterceptGuard intercept(&run);
  try {
    body_(inputs, nullptr);
  } catch (const CallLeft& left) {
    if (left.by != &observer) {
      throw;
    }
  } catch (...) {
    if (!observer.stopped()) {
      throw;
    }
    // fn took the stop for an error and made one of its own of it.
  }
  observer.finish();
  return observer.take();
}

void run_region(RegionBody body, std::vector<at::Tensor> inputs, const CheckpointOptions& options,
                void* result) {
  const bool records_nothing = !c10::AutogradState::get_tls_state().get_grad_mode() ||
                               c10::InferenceMode::is_enabled();
  if (records_nothing || capturing()) {
    body(inputs, result);
    return;
  }
  auto region = std::make_shared<Region>(std::move(body), inputs, options);
  region->first_run(inputs, result);
}

}  // namespace remat::detail
