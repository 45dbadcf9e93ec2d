// SPDX-License-Identifier: Apache-2.0
#include "remat/libtorch/intercept.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

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

void observe(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  struct Scope {
    CurrentCall outer = state.call;
    ~Scope() { state.call = outer; }
  } scope;
  state.call = {&op, state.calls++};
  op.redispatchBoxed(below(kObserveKey, keys), stack);
}

// The keys travel with the thread-local state into engine threads, the interceptor does not: a
// thread without one just runs the op.
void intercept(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  if (state.interceptor == nullptr) {
    run_op(op, keys, *stack);
  } else {
    state.interceptor->intercept(op, keys, *stack);
  }
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
    : previous_(state.interceptor), observe_(kObserveKey), below_autograd_(kInterceptKey) {
  state.interceptor = interceptor;
}

InterceptGuard::~InterceptGuard() { state.interceptor = previous_; }

InterceptPause::InterceptPause() : observe_(kObserveKey), below_autograd_(kInterceptKey) {}

CurrentCall current_call() { return state.call; }

int64_t calls_seen() { return state.calls; }

}  // namespace remat::detail
