// SPDX-License-Identifier: Apache-2.0
#include "remat/libtorch/fault_stack.h"

#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>

namespace remat::detail {
namespace {

constexpr size_t kStackBytes = size_t{8} << 20;  // as a thread's own; only pages that are used exist

// One for each thread that ever needed it.
class Stack {
 public:
  Stack()
      : memory_(mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0)) {}
  ~Stack() {
    if (usable()) {
      munmap(memory_, kStackBytes);
    }
  }
  Stack(const Stack&) = delete;
  Stack& operator=(const Stack&) = delete;
  bool usable() const { return memory_ != MAP_FAILED; }
  void* memory() const { return memory_; }

 private:
  void* memory_;
};

struct Switch {
  const std::function<void()>* work = nullptr;
  stack_t alternate = {};
  ucontext_t handler = {};
};
thread_local Switch* current = nullptr;

// While the work runs, a second fault must not begin at the top of the alternate stack again, where the
// first handler waits: there is none meanwhile.
void run_switched() {
  Switch& mine = *current;
  stack_t none = {};
  none.ss_flags = SS_DISABLE;
  sigaltstack(&none, nullptr);
  (*mine.work)();
  sigaltstack(&mine.alternate, nullptr);
}

}  // namespace

void call_on_large_stack(const std::function<void()>& work) noexcept {
  Switch mine{.work = &work};
  sigaltstack(nullptr, &mine.alternate);
  if ((mine.alternate.ss_flags & SS_ONSTACK) == 0) {
    work();
    return;
  }
  thread_local Stack stack;
  ucontext_t context;
  if (!stack.usable() || getcontext(&context) != 0) {
    work();
    return;
  }
  mine.alternate.ss_flags = 0;
  context.uc_stack.ss_sp = stack.memory();
  context.uc_stack.ss_size = kStackBytes;
  context.uc_link = &mine.handler;
  makecontext(&context, &run_switched, 0);
  Switch* const outer = current;
  current = &mine;
  swapcontext(&mine.handler, &context);
  current = outer;
}

}  // namespace remat::detail
