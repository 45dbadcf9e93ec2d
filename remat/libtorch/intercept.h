// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/stack.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <cstdint>

namespace c10 {
class OperatorHandle;
}

// Seeing every ATen call of one thread. Two places on the way of a call are used, both boxed
// fallbacks on dispatch keys that LibTorch 2.13 reserves and leaves empty on real tensors:
//
//   at::linear ── DeferredInit ── (autograd) ── Fake ── the kernel
//                 notes the op     saves         hands the call to the thread's OpInterceptor
//                 being called     tensors
//
// A process has one fallback per key, so everything that wants to see calls goes through here.
namespace remat::detail {

// Gets every call of its thread below autograd. It must leave the results on the stack: either by
// run_op or by pushing its own in place of the arguments.
class OpInterceptor {
 public:
  virtual ~OpInterceptor() = default;
  virtual void intercept(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                         torch::jit::Stack& stack) = 0;
};

// What is left of a call's keys at the place where the interceptor sees it: with these the op can be
// redispatched again later, under an InterceptPause.
c10::DispatchKeySet keys_below_intercept(c10::DispatchKeySet keys);

// Runs the op with interception off: the calls its kernel makes are its own affair.
void run_op(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack& stack);

// Runs the op with interception on, so that the calls its kernel makes arrive one by one.
void run_op_open(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack& stack);

// The innermost op now being called on this thread under an InterceptGuard; op is null between
// calls.
struct CurrentCall {
  const c10::OperatorHandle* op = nullptr;
  int64_t number = 0;      // calls seen by this thread before it; only differences mean something
  bool in_kernel = false;  // it has passed autograd
  const void* left_by = nullptr;  // see leave_current_call
};
CurrentCall current_call();

// Makes an interceptor the active one of this thread, until the end of the scope. A call that is
// under way is not seen inside the scope.
class InterceptGuard {
 public:
  explicit InterceptGuard(OpInterceptor* interceptor);
  ~InterceptGuard();
  InterceptGuard(const InterceptGuard&) = delete;
  InterceptGuard& operator=(const InterceptGuard&) = delete;

 private:
  OpInterceptor* previous_;
  CurrentCall outer_call_;
  c10::impl::IncludeDispatchKeyGuard observe_;
  c10::impl::IncludeDispatchKeyGuard below_autograd_;
};

// Our own ATen calls inside a region are not the region's.
class InterceptPause {
 public:
  InterceptPause();

 private:
  c10::impl::ExcludeDispatchKeyGuard observe_;
  c10::impl::ExcludeDispatchKeyGuard below_autograd_;
};

// Thrown in place of the return of a call that was left. Not a std::exception, so that a `catch`
// for errors does not take it for one.
struct CallLeft {
  const void* by;
};

// Leaves the current call, from inside autograd's part of it: its kernel is not run, if it has not
// been, and instead of returning it throws CallLeft{by}. Thrown at once, the exception would unwind
// through autograd's frames, at twice the cost; that is done only where there is no call, or one
// that cannot do without its kernel.
void leave_current_call(const void* by);

// Calls seen by this thread so far.
int64_t calls_seen();

}  // namespace remat::detail
