// SPDX-License-Identifier: Apache-2.0
#include "remat/libtorch/saved_hooks.h"

#include <ATen/SavedTensorHooks.h>
#include <torch/csrc/autograd/engine.h>

#include <atomic>
#include <mutex>
#include <utility>

#include "remat/core/error.h"

namespace remat::detail {
namespace {

using torch::autograd::Engine;

thread_local SavedTensorObserver* active_observer = nullptr;

class HookEngine final : public Engine {
 public:
  torch::autograd::variable_list execute(const torch::autograd::edge_list& roots,
                                         const torch::autograd::variable_list& inputs,
                                         bool keep_graph, bool create_graph, bool accumulate_grad,
                                         const torch::autograd::edge_list& outputs) override {
    return behind().execute(roots, inputs, keep_graph, create_graph, accumulate_grad, outputs);
  }

  c10::intrusive_ptr<at::ivalue::Future> execute_with_graph_task(
      const std::shared_ptr<torch::autograd::GraphTask>& graph_task,
      c10::intrusive_ptr<torch::autograd::Node> graph_root,
      torch::autograd::InputBuffer&& input_buffer) override {
    return behind().execute_with_graph_task(graph_task, std::move(graph_root),
                                            std::move(input_buffer));
  }

  std::unique_ptr<torch::autograd::AnomalyMetadata> make_anomaly_metadata() override {
    return behind().make_anomaly_metadata();
  }

  std::unique_ptr<torch::autograd::SavedVariableHooks> get_default_saved_variable_hooks() override {
    return active_observer != nullptr ? active_observer->make_hooks()
                                      : behind().get_default_saved_variable_hooks();
  }

  void thread_on_exception(const std::shared_ptr<torch::autograd::GraphTask>& graph_task,
                           const c10::intrusive_ptr<torch::autograd::Node>& node,
                           std::exception& error) override {
    behind().thread_on_exception(graph_task, node, error);
  }

  void thread_init(int device, const std::shared_ptr<torch::autograd::ReadyQueue>& ready_queue,
                   bool should_increment) override {
    behind().thread_init(device, ready_queue, should_increment);
  }

  void set_behind(Engine* engine) { behind_.store(engine); }

 private:
  Engine& behind() { return *behind_.load(); }

  std::atomic<Engine*> behind_{nullptr};
};

// Never destroyed: autograd may still ask for hooks while other statics are torn down.
HookEngine& hook_engine() {
  static HookEngine& engine = *new HookEngine();
  return engine;
}

Engine& hook_engine_stub() { return hook_engine(); }

// Checked at every region: a Python interpreter loaded after the first one installs its own engine.
void install_engine() {
  if (&Engine::get_default_engine() == &hook_engine()) {
    return;
  }
  static std::mutex mutex;
  std::lock_guard<std::mutex> lock(mutex);
  Engine& found = Engine::get_default_engine();
  if (&found != &hook_engine()) {
    hook_engine().set_behind(&found);
    torch::autograd::set_default_engine_stub(&hook_engine_stub);
  }
}

}  // namespace

SavedTensorGuard::SavedTensorGuard(SavedTensorObserver* observer) : previous_(active_observer) {
  if (!at::SavedTensorDefaultHooks::is_enabled()) {
    throw Error(
        "[checkpoint] saved-tensor hooks are switched off on this thread, so activations would be "
        "kept; call checkpoint outside the code that disables them");
  }
  install_engine();
  active_observer = observer;
}

SavedTensorGuard::~SavedTensorGuard() { active_observer = previous_; }

}  // namespace remat::detail
