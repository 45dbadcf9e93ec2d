// SPDX-License-Identifier: Apache-2.0
// Channels to a file: what comes back is what was written, in every way in which bytes can get
// there.
#include "remat/libtorch/channel.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <system_error>

#include "remat/libtorch/channel_speed.h"
#include "tests/libtorch/channel_fixture.h"
#include "tests/libtorch/small_disk.h"
#include "tests/testing/skip.h"

namespace remat::testing {
namespace {

using detail::Channel;
using detail::FileChannel;
using detail::FileChannelOptions;
using detail::open_file_channel;

using Channels = EveryWay;

TEST_P(Channels, GiveBackWhatWasWritten) {
  const auto channel = open();
  const Block written(3 * MiB + 4096, 1);
  Block found(written.bytes(), 2);
  channel->wait(channel->write(8192, written.data(), written.bytes()));
  channel->wait(channel->read(8192, found.data(), found.bytes()));
  EXPECT_TRUE(found == written);
}

TEST_P(Channels, SayHowTheBytesGo) {
  const auto channel = open();
  if (channel->facts().direct != GetParam().direct || channel->facts().uring != GetParam().uring) {
    REMAT_SKIP("it cannot be done here: " << channel->facts().why_no_uring
                                          << channel->facts().why_not_direct);
  }
  EXPECT_TRUE(has(channel->description(), GetParam().uring ? "io_uring" : "blocking"))
      << channel->description();
  EXPECT_TRUE(has(channel->description(), GetParam().direct ? "direct" : "page cache"))
      << channel->description();
  EXPECT_EQ(channel->alignment_bytes() > 1, GetParam().direct);
  EXPECT_TRUE(channel->facts().why_no_uring.empty() && channel->facts().why_not_direct.empty());
}

TEST_P(Channels, ServeRequestsInOrder) {
  const auto channel = open();
  const Block first(MiB, 1);
  const Block second(MiB, 2);
  Block of_first(MiB, 3);
  Block of_second(MiB, 4);
  channel->write(0, first.data(), MiB);
  channel->read(0, of_first.data(), MiB);
  channel->write(0, second.data(), MiB);
  channel->wait(channel->read(0, of_second.data(), MiB));
  EXPECT_TRUE(of_first == first);
  EXPECT_TRUE(of_second == second);
}

TEST_P(Channels, ReadIntoMemoryOnlyWhenWhatWasThereHasBeenWritten) {
  const auto channel = open();
  const Block first(MiB, 1);
  const Block second(MiB, 2);
  Block memory(MiB, 1);
  Block found(MiB, 3);
  channel->wait(channel->write(0, second.data(), MiB));
  channel->write(MiB, memory.data(), MiB);
  channel->read(0, memory.data(), MiB);
  channel->wait(channel->read(MiB, found.data(), MiB));
  EXPECT_TRUE(found == first);
  EXPECT_TRUE(memory == second);
}

// A hundred requests at a time, of any size, over each other, beside what they should do.
TEST_P(Channels, AgreeWithMemoryOnRandomRequests) {
  for (const int64_t most_bytes : {int64_t{0}, int64_t{9000}}) {
    Faults faults;
    faults.most_bytes = most_bytes;
    const auto channel = open(faults);
    constexpr int64_t kBlocks = 64;
    Block model(kBlocks * 4096, 0);
    channel->write(0, model.data(), model.bytes());
    channel->drain();
    std::mt19937 random(most_bytes + 7);
    for (int round = 0; round < 4; ++round) {
      std::vector<std::pair<Block, Block>> reads;  // found, expected
      std::vector<Block> sources;
      reads.reserve(100);
      sources.reserve(100);
      Channel::Ticket last = 0;
      for (int i = 0; i < 100; ++i) {
        const int64_t begin = std::uniform_int_distribution<int64_t>(0, kBlocks - 1)(random);
        const int64_t end = std::uniform_int_distribution<int64_t>(begin + 1, kBlocks)(random);
        const int64_t bytes = (end - begin) * 4096;
        const auto size = static_cast<size_t>(bytes);
        if (random() % 2 == 0) {
          sources.emplace_back(bytes, random());
          std::memcpy(model.data() + begin * 4096, sources.back().data(), size);
          last = channel->write(begin * 4096, sources.back().data(), bytes);
        } else {
          reads.emplace_back(Block(bytes, 1), Block(bytes, 2));
          std::memcpy(reads.back().second.data(), model.data() + begin * 4096, size);
          last = channel->read(begin * 4096, reads.back().first.data(), bytes);
        }
      }
      channel->wait(last);
      EXPECT_TRUE(channel->done(1));
      for (const auto& [found, expected] : reads) {
        ASSERT_TRUE(found == expected);
      }
    }
  }
}

TEST_P(Channels, AreDoneInTheOrderOfTickets) {
  Faults faults;
  faults.bytes_per_second = 20 * MiB;
  const auto channel = open(faults);
  const Block block(256 * KiB, 1);
  std::vector<Channel::Ticket> tickets;
  for (int64_t i = 0; i < 6; ++i) {
    tickets.push_back(channel->write(i * block.bytes(), block.data(), block.bytes()));
    EXPECT_EQ(tickets.back(), i + 1);
  }
  EXPECT_FALSE(channel->done(tickets.back()));  // at that speed it takes 75 ms
  channel->wait(tickets[2]);
  for (size_t i = 0; i <= 2; ++i) {
    EXPECT_TRUE(channel->done(tickets[i]));
  }
  channel->drain();
  EXPECT_TRUE(channel->done(tickets.back()));
}

TEST_P(Channels, EndWithRequestsUnderWay) {
  Faults faults;
  faults.bytes_per_second = 100 * MiB;
  Block memory(MiB, 1);
  {
    const auto channel = open(faults);
    for (int64_t i = 0; i < 50; ++i) {  // half a second of work
      channel->write(i * MiB, memory.data(), MiB);
    }
  }
  {
    const auto channel = open(faults);
    channel->wait(channel->write(0, memory.data(), MiB));
    for (int64_t i = 0; i < 50; ++i) {
      channel->read(0, memory.data(), MiB);
    }
  }
  const Block copy(MiB, 1);
  EXPECT_TRUE(memory == copy);
}

TEST_P(Channels, LeaveNothingBehindWhenTheProcessIsKilled) {
  const std::string folder =
      ::testing::TempDir() + "remat_channel_" + std::to_string(getpid()) + "_" + GetParam().name;
  std::filesystem::create_directories(folder);
  for (const bool without_nameless_files : {false, true}) {
    int ready[2];
    ASSERT_EQ(pipe(ready), 0);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      FileChannelOptions chosen = options(folder);
      chosen.without_nameless_files = without_nameless_files;
      const auto channel = open_file_channel(chosen);
      const Block block(MiB, 1);
      channel->wait(channel->write(0, block.data(), MiB));
      static_cast<void>(::write(ready[1], "x", 1) == 1);
      for (int64_t i = 0;; ++i) {
        channel->write(i % 64 * MiB, block.data(), MiB);
        if (i % 4 == 0) {
          channel->drain();
        }
      }
    }
    close(ready[1]);
    char byte = 0;
    EXPECT_EQ(::read(ready[0], &byte, 1), 1);
    close(ready[0]);
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    EXPECT_TRUE(std::filesystem::is_empty(folder));
  }
  std::filesystem::remove_all(folder);
}

TEST_P(Channels, RefuseToWorkInAForkedProcessAndEndThere) {
  auto channel = open();
  const Block block(MiB, 1);
  channel->wait(channel->write(0, block.data(), MiB));
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const std::string message = error_of([&] { channel->write(0, block.data(), MiB); });
    channel.reset();
    _exit(has(message, "forked") ? 0 : 1);
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  Block found(MiB, 2);
  channel->wait(channel->read(0, found.data(), MiB));
  EXPECT_TRUE(found == block);
}

// Of the one file without a name that this process has open: the bytes that the page cache holds.
int64_t cached_bytes() {
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const std::string target = std::filesystem::read_symlink(entry.path(), gone).string();
    if (!target.starts_with(::testing::TempDir()) || !target.ends_with("(deleted)")) {
      continue;
    }
    const int file = ::open(entry.path().c_str(), O_RDONLY);
    const auto size = static_cast<size_t>(lseek(file, 0, SEEK_END));
    void* const mapped = mmap(nullptr, size, PROT_READ, MAP_SHARED, file, 0);
    std::vector<unsigned char> pages(size / 4096);
    const bool known = mapped != MAP_FAILED && mincore(mapped, size, pages.data()) == 0;
    munmap(mapped, size);
    close(file);
    return known ? 4096 * std::ranges::count_if(pages, [](auto page) { return (page & 1) != 0; })
                 : -1;
  }
  return -1;
}

TEST_P(Channels, LeaveThePageCacheToOthers) {
  FileChannelOptions chosen = options();
  chosen.piece_bytes = MiB;
  const auto channel = open_file_channel(chosen);
  if (channel->facts().in_memory) {
    REMAT_SKIP(::testing::TempDir() << " lies in memory");
  }
  Block block(64 * MiB, 1);
  channel->wait(channel->write(0, block.data(), block.bytes()));
  EXPECT_GE(cached_bytes(), 0);
  EXPECT_LE(cached_bytes(), 4 * MiB);
  constexpr int64_t kBytes = 3 * MiB + 4096;
  for (int64_t offset = 0; offset + kBytes <= block.bytes(); offset += kBytes) {
    channel->wait(channel->read(offset, block.data() + offset, kBytes));
  }
  EXPECT_LE(cached_bytes(), 16 * MiB);  // what was read ahead of the last pieces
  for (int64_t offset = block.bytes() - kBytes; offset >= 0; offset -= kBytes) {
    channel->wait(channel->read(offset, block.data() + offset, kBytes));
  }
  EXPECT_LE(cached_bytes(), 16 * MiB);
}

TEST_P(Channels, AreMeasured) {
  // A sleeping disk is never faster than it says, on a loaded machine too.
  Faults faults;
  faults.bytes_per_second = 200'000'000;
  const auto channel = open(faults);
  const detail::ChannelSpeed speed = detail::measure_channel(*channel, 8 * MiB);
  EXPECT_GT(speed.write_bytes_per_second, 0);
  EXPECT_GT(speed.read_bytes_per_second, 0);
  EXPECT_LE(speed.write_bytes_per_second, 200e6);
  EXPECT_LE(speed.read_bytes_per_second, 200e6);
  EXPECT_GT(speed.latency_ns, 0);
  EXPECT_GT(speed.read_ns(2 * MiB), speed.read_ns(MiB));
  EXPECT_GE(speed.write_ns(MiB), 5 * 1'000'000);
}

INSTANTIATE_TEST_SUITE_P(Files, Channels, ::testing::ValuesIn(kWays),
                         [](const auto& each) { return std::string(each.param.name); });

}  // namespace
}  // namespace remat::testing
