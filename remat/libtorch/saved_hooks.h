// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/csrc/autograd/saved_variable_hooks.h>

#include <memory>

// Default saved-tensor hooks from C++. LibTorch asks its default engine for hooks whenever autograd
// saves a tensor, and only Python's engine has an answer; ours stands in front of whichever engine
// was there and forwards everything else to it.
namespace remat::detail {

// Decides what happens to the tensors autograd saves on a thread.
class SavedTensorObserver {
 public:
  virtual ~SavedTensorObserver() = default;
  // Hooks for the one tensor about to be saved.
  virtual std::unique_ptr<torch::autograd::SavedVariableHooks> make_hooks() = 0;
};

// Makes an observer the active one of this thread, until the end of the scope. Throws remat::Error
// where saved-tensor hooks are switched off for the thread.
class SavedTensorGuard {
 public:
  explicit SavedTensorGuard(SavedTensorObserver* observer);
  ~SavedTensorGuard();
  SavedTensorGuard(const SavedTensorGuard&) = delete;
  SavedTensorGuard& operator=(const SavedTensorGuard&) = delete;

 private:
  SavedTensorObserver* previous_;
};

}  // namespace remat::detail
