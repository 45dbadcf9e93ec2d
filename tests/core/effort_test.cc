// SPDX-License-Identifier: Apache-2.0
#include "remat/core/effort.h"

#include <gtest/gtest.h>

namespace remat {
namespace effort_test {

TEST(Effort, IsPaidByAllAbove) {
  Effort plan;
  Effort search = plan.part(100);
  {
    Effort reorder = search.part(30);
    reorder.spend(20);
    EXPECT_EQ(reorder.spent(), 20);
    EXPECT_EQ(reorder.left(), 10);
    EXPECT_DOUBLE_EQ(reorder.progress(), 2.0 / 3);
  }
  Effort bound = plan.part(50);
  bound.spend(5);
  EXPECT_EQ(search.spent(), 20);
  EXPECT_EQ(search.left(), 80);
  EXPECT_EQ(plan.spent(), 25);
}

TEST(Effort, IsExhaustedWithAnyOfThoseAbove) {
  Effort plan;
  Effort search = plan.part(100);
  Effort large = search.part(1'000);
  EXPECT_EQ(large.left(), 100);
  Effort small = large.part(10);
  small.spend(10);
  EXPECT_TRUE(small.exhausted());
  EXPECT_FALSE(large.exhausted());
  large.spend(90);
  EXPECT_TRUE(large.exhausted());
  EXPECT_TRUE(search.exhausted());
  EXPECT_FALSE(plan.exhausted());
  EXPECT_EQ(large.left(), 0);
  EXPECT_TRUE(plan.part(0).exhausted());
}

TEST(Effort, EndsWithTheCpuTimeOfTheWhole) {
  Effort over(0.0);
  Effort part = over.part(1'000'000);
  EXPECT_TRUE(part.out_of_cpu());
  EXPECT_TRUE(part.exhausted());
  EXPECT_GT(part.left(), 0);
  Effort ample(3'600.0);
  EXPECT_FALSE(ample.part().exhausted());
}

TEST(Effort, ThatIsAPartOfTheTimeLeavesTheRest) {
  Effort whole(0.02);
  {
    Effort first = whole.part_of_time(0.25);
    Effort inner = first.part();
    while (!inner.exhausted()) inner.spend(1'000);
    EXPECT_TRUE(first.exhausted());
    EXPECT_GT(first.left(), 0);
  }
  EXPECT_FALSE(whole.part().out_of_cpu());
  Effort counted;
  EXPECT_FALSE(counted.part_of_time(0.5).out_of_cpu());  // half of no end is none
  EXPECT_EQ(Effort::of_work(100).part_of_time(0.75).left(), 75);
  Effort over(0.0);
  EXPECT_TRUE(over.part_of_time(0.5).out_of_cpu());
}

// The clock is looked at now and then only, but then at the latest.
TEST(Effort, NoticesTheEndOfCpuTimeAfterSomeWork) {
  const double begin = thread_cpu_seconds();
  Effort whole(0.01);
  Effort part = whole.part();
  constexpr int kFarTooMany = 50'000'000;
  int looks = 0;
  for (; looks < kFarTooMany && !part.exhausted(); ++looks) part.spend(1'000);
  EXPECT_LT(looks, kFarTooMany);
  EXPECT_GE(thread_cpu_seconds() - begin, 0.01);
  EXPECT_TRUE(whole.part(1).exhausted());  // for good, and for everyone
}

TEST(Effort, EndsForGoodWhenItIsToldTo) {
  bool stop = false;
  Effort whole(3'600.0, [&] { return stop; });
  Effort part = whole.part();
  EXPECT_FALSE(part.out_of_cpu());
  stop = true;
  EXPECT_TRUE(part.out_of_cpu());
  stop = false;
  EXPECT_TRUE(part.exhausted());
}

TEST(Effort, CountsUnitsOfTwoAndAHalfNanoseconds) {
  EXPECT_EQ(Effort::work_of_seconds(1e-6), 400);
  EXPECT_EQ(Effort::work_of_seconds(0), 0);
  EXPECT_GT(Effort::work_of_seconds(1e300), int64_t{1} << 50);  // no overflow
}

}  // namespace effort_test
}  // namespace remat
