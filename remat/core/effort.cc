// SPDX-License-Identifier: Apache-2.0
#include "remat/core/effort.h"

#include <time.h>

#include <utility>

namespace remat {
namespace {

constexpr double kNsPerWork = 2.5;  // on an idle machine
// Times that. Sanitizers look at every access: what they slow down is to give the same plans.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr double kSlowest = 80;
#else
constexpr double kSlowest = 4;
#endif
constexpr int64_t kWorkBetweenLooks = 100'000;
constexpr double kMostSeconds = 1e9;

}  // namespace

double thread_cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

int64_t Effort::work_of_seconds(double seconds) {
  return static_cast<int64_t>(1e9 / kNsPerWork * std::min(seconds, kMostSeconds));
}

double Effort::most_cpu_seconds(double seconds) { return kSlowest * seconds; }

Effort::Effort(double cpu_seconds, std::function<bool()> stop, int64_t work)
    : limit_(work), cpu_end_(thread_cpu_seconds() + cpu_seconds), stop_(std::move(stop)) {}

int64_t Effort::left() const {
  int64_t left = kUnlimited;
  for (const Effort* payer = this; payer != nullptr; payer = payer->parent_) {
    left = std::min(left, payer->limit_ - payer->spent_);
  }
  return std::max<int64_t>(0, left);
}

Effort Effort::part_of_time(double share) {
  const double now = thread_cpu_seconds();
  double end = std::numeric_limits<double>::infinity();
  for (const Effort* payer = this; payer != nullptr; payer = payer->parent_) end = std::min(end, payer->cpu_end_);
  const int64_t work = static_cast<int64_t>(share * static_cast<double>(left()));
  return Effort(this, work, now + share * (end - now));
}

bool Effort::exhausted() {
  Effort* first = this;
  bool out = false;
  for (Effort* payer = this; payer != nullptr; payer = payer->parent_) {
    if (payer->spent_ >= payer->limit_) return true;
    out = out || payer->out_of_cpu_;
    first = payer;
  }
  if (first->spent_ < first->next_look_) return out;
  first->next_look_ = first->spent_ + kWorkBetweenLooks;
  return out_of_cpu();
}

bool Effort::out_of_cpu() {
  const double now = thread_cpu_seconds();
  bool out = false;
  for (Effort* payer = this; payer != nullptr; payer = payer->parent_) {
    payer->out_of_cpu_ = payer->out_of_cpu_ || now >= payer->cpu_end_ || (payer->stop_ && payer->stop_());
    out = out || payer->out_of_cpu_;
  }
  return out;
}

}  // namespace remat
