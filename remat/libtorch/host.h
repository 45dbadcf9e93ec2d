// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <stdexcept>
#include <string>

namespace remat {

// Ends a step that runs, on the user's demand (Ctrl-C). Thrown by Host::poll, or by the step's own
// function. Parameters, buffers, optimizer state and generators are then as before the step.
class Interrupted : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Where an op was called.
struct CallSite {
  std::string layer;  // "encoder.layer.3.attention"; blanks become '_'
  std::string line;   // of the program: "train.py:12"
};

// What the language around the step knows and the library cannot. An interpreter fills it in (the
// Python package does); each function may be missing. They are called on the step's thread.
struct Host {
  // While a course is recorded, for every op outside of backward that no Scope names.
  std::function<CallSite()> call_site = {};
  // The name of a tensor that lives between steps, empty where there is none. While a course is recorded.
  std::function<std::string(const at::Tensor&)> name_of = {};
  // Before every op of the schedule for as long as the step can still be undone, and often while
  // measuring and planning: must be quick. Throws Interrupted to end the step.
  std::function<void()> poll = {};
  // Frees what nobody can reach any more (a garbage collector), before it is found out which tensors of
  // the step are still held.
  std::function<void()> collect = {};
};

}  // namespace remat
