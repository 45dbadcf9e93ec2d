// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>

namespace remat {

// CPU time of this thread, so that neighbours on the machine do not count.
double thread_cpu_seconds();

// What a search may spend. It is counted, not measured, so that the same input gives the same plan on
// a slow or loaded machine too. There is one currency, the *unit of work*: what looking at one operand
// of an op takes, a few nanoseconds on an idle machine. Every search says what it did in these units. CPU
// time only ends what takes many times as long as it should.
//
//     whole plan           four times the time limit
//      ├─ search           its share of the time limit
//      │   └─ reorder      what is spent here is spent by `search` and by the whole plan too
//      ├─ bound
//      └─ place
class Effort {
 public:
  static constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();
  // What an idle machine does in that time.
  static int64_t work_of_seconds(double seconds);
  // The CPU time after which a search with this time limit is ended in any case: four times the limit, more under
  // sanitizers. Up to there a slow machine gives the same result as a fast one.
  static double most_cpu_seconds(double seconds);

  // Limited by CPU time from now on, and by work.
  // `stop` is asked now and then; once it is true, the CPU time has ended.
  explicit Effort(double cpu_seconds = std::numeric_limits<double>::infinity(),
                  std::function<bool()> stop = {}, int64_t work = kUnlimited);
  // So much work, in any CPU time.
  static Effort of_work(int64_t work) { return Effort(nullptr, work); }
  Effort(const Effort&) = delete;
  Effort& operator=(const Effort&) = delete;

  // So much work of this one, which pays for it and must outlive it.
  Effort part(int64_t work = kUnlimited) { return Effort(this, work); }

  // Ends with this share of the CPU time and of the work that are left, so that the rest is there for what comes
  // after it.
  Effort part_of_time(double share);

  void spend(int64_t work) {
    for (Effort* payer = this; payer != nullptr; payer = payer->parent_) payer->spent_ += work;
  }
  int64_t spent() const { return spent_; }
  // Of this one and of all who pay for it.
  int64_t left() const;
  // How much of its own limit is spent, from 0 to 1 and a little more.
  double progress() const {
    return static_cast<double>(spent_) / static_cast<double>(std::max<int64_t>(1, limit_));
  }

  // Whether nothing is left, or CPU time has ended. That is looked at now and then: asking for it takes
  // as long as looking at a small order.
  bool exhausted();
  bool out_of_cpu();  // asks at once

 private:
  Effort(Effort* parent, int64_t work, double cpu_end = std::numeric_limits<double>::infinity())
      : parent_(parent), limit_(work), cpu_end_(cpu_end) {}

  Effort* parent_ = nullptr;
  int64_t limit_ = kUnlimited;
  int64_t spent_ = 0;
  double cpu_end_ = std::numeric_limits<double>::infinity();
  std::function<bool()> stop_;
  bool out_of_cpu_ = false;
  int64_t next_look_ = 0;  // spent work at which to look at the CPU time again; of the one without a parent
};

}  // namespace remat
