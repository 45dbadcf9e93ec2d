// SPDX-License-Identifier: Apache-2.0
#include "remat/libtorch/budget.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "remat/core/error.h"
#include "remat/core/graph_text.h"
#include "remat/core/plan.h"
#include "remat/libtorch/available_memory.h"
#include "remat/libtorch/device.h"

namespace remat::testing {
namespace {

// Keeps `bytes` beside an external of 10.
Graph graph_of(int64_t bytes) {
  return parse_graph(
      "remat-graph 1\nexternal w 10 param\nop a forward kind=aten::mm time_ns=1 reads=w creates=x:" +
      std::to_string(bytes) + "\noutput x\n");
}

TEST(ShareOfPlainPeak, IsOfTheCourseThatNeedsMost) {
  const auto half = share_of_plain_peak(0.5);
  EXPECT_EQ(half(graph_of(90)), 50);
  EXPECT_EQ(half(graph_of(190)), 100);
  EXPECT_EQ(half(graph_of(90)), 100);
}

TEST(ShareOfPlainPeak, RefusesNonsense) {
  for (const double share : {0.0, -1.0, std::numeric_limits<double>::quiet_NaN(),
                             std::numeric_limits<double>::infinity()}) {
    EXPECT_THROW(share_of_plain_peak(share), Error) << share;
  }
}

TEST(AvailableMemory, IsNineTenthsOfWhatIsLeftAndStays) {
  const auto budget = available_memory();
  const Graph graph = graph_of(90);
  const auto left = static_cast<double>(detail::cpu_device().available_bytes());
  const int64_t found = budget(graph);
  EXPECT_NEAR(static_cast<double>(found), 0.9 * left, 0.1 * left);  // others use the machine
  EXPECT_EQ(budget(graph_of(1000)), found);
}

// A tree of files like those of Linux.
class AvailableBytes : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = ::testing::TempDir() + "remat_available_" + std::to_string(getpid()) + "/";
    std::filesystem::create_directories(root_);
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  void write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text;
  }
  int64_t found() const { return detail::available_bytes(root_); }

  std::string root_;
};

TEST_F(AvailableBytes, OfTheMachine) {
  write("proc/meminfo", "MemTotal: 24000 kB\nMemFree: 1 kB\nMemAvailable: 2000 kB\n");
  EXPECT_EQ(found(), 2000 * 1024);
}

TEST_F(AvailableBytes, OfTheSecondVersionOfCgroupsTheTightestFolderCounts) {
  write("proc/meminfo", "MemAvailable: 2000 kB\n");
  write("proc/self/cgroup", "0::/user/job\n");
  write("sys/fs/cgroup/user/job/memory.max", "max\n");
  write("sys/fs/cgroup/user/job/memory.current", "100\n");
  write("sys/fs/cgroup/user/memory.max", "1000\n");
  write("sys/fs/cgroup/user/memory.current", "700\n");
  write("sys/fs/cgroup/user/memory.stat", "anon 600\ninactive_file 50\n");
  EXPECT_EQ(found(), 350);
}

// The one above which processes are slowed down until hardly anything goes on.
TEST_F(AvailableBytes, OfTheSecondVersionOfCgroupsTheSofterLimitCountsToo) {
  write("proc/meminfo", "MemAvailable: 2000 kB\n");
  write("proc/self/cgroup", "0::/user/job\n");
  write("sys/fs/cgroup/user/job/memory.max", "max\n");
  write("sys/fs/cgroup/user/job/memory.high", "800\n");
  write("sys/fs/cgroup/user/job/memory.current", "100\n");
  EXPECT_EQ(found(), 700);
  write("sys/fs/cgroup/user/job/memory.max", "500\n");
  EXPECT_EQ(found(), 400);
  write("sys/fs/cgroup/user/memory.max", "max\n");
  write("sys/fs/cgroup/user/memory.high", "300\n");
  write("sys/fs/cgroup/user/memory.current", "150\n");
  EXPECT_EQ(found(), 150);
}

TEST_F(AvailableBytes, OfTheFirstVersionOfCgroups) {
  write("proc/meminfo", "MemAvailable: 2000 kB\n");
  write("proc/self/cgroup", "5:cpu:/\n4:memory:/job\n0::/\n");
  write("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "5000\n");
  write("sys/fs/cgroup/memory/job/memory.usage_in_bytes", "4500\n");
  write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  write("sys/fs/cgroup/memory/memory.usage_in_bytes", "4500\n");
  EXPECT_EQ(found(), 500);
  write("sys/fs/cgroup/memory/job/memory.usage_in_bytes", "6000\n");
  EXPECT_EQ(found(), 0);
}

TEST_F(AvailableBytes, WithoutAnyFileThereIsNoLimit) { EXPECT_GT(found(), int64_t{1} << 60); }

TEST_F(AvailableBytes, WhatTheProcessHasInMemoryIsThatOfNoFile) {
  write("proc/self/status", "Name: x\nVmRSS: 900 kB\nRssAnon:\t  500 kB\nRssFile: 400 kB\n");
  EXPECT_EQ(detail::resident_bytes(root_), 500 * 1024);
}

TEST_F(AvailableBytes, WaitingForMemoryIsThatOfTheGroupElseOfTheMachine) {
  EXPECT_EQ(detail::stalled_percent(root_), 0);
  write("proc/pressure/memory", "some avg10=12.50 avg60=1.00 avg300=0.00 total=1\nfull avg10=1.00 avg60=0 avg300=0 total=0\n");
  EXPECT_EQ(detail::stalled_percent(root_), 12.5);
  write("proc/self/cgroup", "4:memory:/old\n0::/user/job\n");
  EXPECT_EQ(detail::stalled_percent(root_), 12.5);
  write("sys/fs/cgroup/user/job/memory.pressure", "some avg10=0.25 avg60=0.00 avg300=0.00 total=1\n");
  EXPECT_EQ(detail::stalled_percent(root_), 0.25);
  write("sys/fs/cgroup/user/job/memory.pressure", "nonsense\n");
  EXPECT_EQ(detail::stalled_percent(root_), 12.5);
}

}  // namespace
}  // namespace remat::testing
