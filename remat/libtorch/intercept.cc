// SPDX-License-Identifier: Apache-2.0
#include "remat/libtorch/intercept.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <pthread.h>
#include <torch/library.h>

#include <algorithm>
#include <utility>

#include "remat/libtorch/op_traits.h"

namespace remat::detail {
namespace {

constexpr auto kObserveKey = c10::DispatchKey::DeferredInit;  // above autocast and autograd
constexpr auto kInterceptKey = c10::DispatchKey::Fake;        // below autograd, above the backends

struct ThreadState {
  OpInterceptor* interceptor = nullptr;
  CurrentCall call;
  int64_t calls = 0;
};
thread_local ThreadState state;

c10::DispatchKeySet below(c10::DispatchKey key, c10::DispatchKeySet keys) {
  return keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, key);
}

// Asks for a pointer to the bytes, which is noticed, before the op reads them in a way that is not.
void ask_for_host_arguments(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  const OpTraits& traits = traits_of(op);
  for (const int argument : traits.host_arguments) {
    const c10::IValue& value = torch::jit::peek(stack, static_cast<size_t>(argument),
                                                op.schema().arguments().size());
    if (!value.isTensor() || !value.toTensor().defined() || !value.toTensor().has_storage()) {
      continue;
    }
    const bool needs_gradient = value.toTensor().requires_grad() && c10::GradMode::is_enabled();
    if (!(traits.host_arguments_without_gradient && needs_gradient)) {
      value.toTensor().storage().mutable_data();
    }
  }
}

void observe(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const void* left_by = nullptr;
  {
    struct Scope {
      CurrentCall outer = state.call;
      ~Scope() { state.call = outer; }
    } scope;
    state.call = {&op, state.calls++};
    if (state.interceptor != nullptr) {
      ask_for_host_arguments(op, *stack);
    }
    op.redispatchBoxed(below(kObserveKey, keys), stack);
    left_by = state.call.left_by;
  }
  if (left_by != nullptr) {
    throw CallLeft{left_by};  // here, where there is nothing to clean up: that would cost 2 us
  }
}

// The autograd part of ATen's own ops is generated code, which takes an undefined tensor for a
// result that is not there.
bool can_do_without_kernel(const c10::OperatorHandle& op) {
  const auto& results = op.schema().returns();
  return op.schema().name().starts_with("aten::") && traits_of(op).fresh_results &&
         std::all_of(results.begin(), results.end(), [](const c10::Argument& result) {
           return result.type()->kind() == c10::TypeKind::TensorType;
         });
}

// The keys travel with the thread-local state into engine threads, the interceptor does not: a
// thread without one just runs the op.
void intercept(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const bool is_left = state.call.left_by != nullptr && !state.call.in_kernel;
  state.call.in_kernel = true;
  if (is_left) {
    torch::jit::drop(*stack, op.schema().arguments().size());
    stack->resize(stack->size() + op.schema().returns().size(), at::Tensor());
  } else if (state.interceptor == nullptr || traits_of(op).marker) {
    run_op(op, keys, *stack);
  } else {
    state.interceptor->intercept(op, keys, *stack);
  }
}

// A process that is forked inside of a step (a DataLoader's worker) is not part of it.
void forget_in_forked_processes() {
  static const int registered = pthread_atfork(nullptr, nullptr, [] { state = {}; });
  (void)registered;
}

TORCH_LIBRARY_IMPL(_, DeferredInit, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&observe>());
}

TORCH_LIBRARY_IMPL(_, Fake, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&intercept>());
}

}  // namespace

c10::DispatchKeySet keys_below_intercept(c10::DispatchKeySet keys) {
  return below(kInterceptKey, keys);
}

void run_op(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack& stack) {
  InterceptPause pause;
  op.redispatchBoxed(below(kInterceptKey, keys), &stack);
}

void run_op_open(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                 torch::jit::Stack& stack) {
  op.redispatchBoxed(below(kInterceptKey, keys), &stack);
}

InterceptGuard::InterceptGuard(OpInterceptor* interceptor)
    : previous_(std::exchange(state.interceptor, interceptor)),
      outer_call_(std::exchange(state.call, {})),
      observe_(kObserveKey),
      below_autograd_(kInterceptKey) {
  forget_in_forked_processes();
}

InterceptGuard::~InterceptGuard() {
  state.interceptor = previous_;
  state.call = outer_call_;
}

InterceptPause::InterceptPause() : observe_(kObserveKey), below_autograd_(kInterceptKey) {}

CurrentCall current_call() { return state.call; }

void leave_current_call(const void* by) {
  if (state.call.op == nullptr ||
      !(state.call.in_kernel || can_do_without_kernel(*state.call.op))) {
    throw CallLeft{by};
  }
  state.call.left_by = by;
}

int64_t calls_seen() { return state.calls; }

}  // namespace remat::detail
