// SPDX-License-Identifier: Apache-2.0
// Channels to disks that are full, slow, faulty, or not what they should be.
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/fsuid.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <fstream>

#include "tests/libtorch/channel_fixture.h"
#include "tests/libtorch/small_disk.h"
#include "tests/testing/skip.h"

namespace remat::testing {
namespace {

using detail::Channel;
using detail::FileChannelOptions;
using detail::open_file_channel;

using ChannelFaults = EveryWay;

Faults failing_at(int64_t number, int error) {
  Faults faults;
  faults.fail_at = number;
  faults.error = error;
  return faults;
}

TEST_P(ChannelFaults, AWriteThatFailsIsToldByItsTicketAndOthersAreServed) {
  for (const int error : {ENOSPC, EIO}) {
    const auto channel = open(failing_at(5, error));  // the second piece of the second request
    const Block block(64 * KiB, 1);
    Block found(block.bytes(), 2);
    const Channel::Ticket before = channel->write(0, block.data(), block.bytes());
    const Channel::Ticket failing = channel->write(MiB, block.data(), block.bytes());
    const Channel::Ticket after = channel->write(2 * MiB, block.data(), block.bytes());
    channel->wait(after);
    channel->wait(before);
    for (int i = 0; i < 2; ++i) {
      const std::string message = error_of([&] { channel->wait(failing); });
      EXPECT_TRUE(has(message, "[offload] 64 KiB at 1 MiB")) << message;
      EXPECT_TRUE(has(message, "cannot be written")) << message;
      EXPECT_TRUE(has(message, std::strerror(error))) << message;
      EXPECT_TRUE(has(message, "name another folder")) << message;
    }
    const Channel::Ticket lost = channel->read(MiB, found.data(), found.bytes());
    const std::string message = error_of([&] { channel->wait(lost); });
    EXPECT_TRUE(has(message, "could not be written before")) << message;
    channel->drain();
    EXPECT_NO_THROW(channel->wait(failing));
    channel->wait(channel->write(MiB, block.data(), block.bytes()));
    channel->wait(channel->read(MiB, found.data(), found.bytes()));
    EXPECT_TRUE(found == block);
  }
}

TEST_P(ChannelFaults, AReadThatFailsIsToldAndCanBeRepeated) {
  const auto channel = open(failing_at(4, EIO));
  const Block block(64 * KiB, 1);
  Block found(block.bytes(), 2);
  channel->wait(channel->write(0, block.data(), block.bytes()));
  const std::string message =
      error_of([&] { channel->wait(channel->read(0, found.data(), found.bytes())); });
  EXPECT_TRUE(has(message, "cannot be read: Input/output error")) << message;
  channel->wait(channel->read(0, found.data(), found.bytes()));
  EXPECT_TRUE(found == block);
}

TEST_P(ChannelFaults, InterruptedTransfersAreRepeated) {
  for (const int error : {EINTR, EAGAIN}) {
    Faults faults = failing_at(1, error);
    faults.fail_until = 20;
    const auto channel = open(faults);
    const Block block(256 * KiB, 1);
    Block found(block.bytes(), 2);
    channel->write(0, block.data(), block.bytes());
    channel->wait(channel->read(0, found.data(), found.bytes()));
    EXPECT_TRUE(found == block);
  }
}

TEST_P(ChannelFaults, ReadingWhereNothingWasWrittenIsAnError) {
  const auto channel = open();
  Block found(64 * KiB, 2);
  const std::string message =
      error_of([&] { channel->wait(channel->read(GiB, found.data(), found.bytes())); });
  EXPECT_TRUE(has(message, "nothing was written there")) << message;
}

TEST_P(ChannelFaults, DrainForgetsFailures) {
  Faults faults = failing_at(0, EIO);
  faults.fail_until = 1000;
  const auto channel = open(faults);
  const Block block(64 * KiB, 1);
  std::vector<Channel::Ticket> tickets;
  for (int64_t i = 0; i < 20; ++i) {
    tickets.push_back(channel->write(i * block.bytes(), block.data(), block.bytes()));
  }
  channel->drain();
  for (const Channel::Ticket ticket : tickets) {
    EXPECT_TRUE(channel->done(ticket));
    EXPECT_NO_THROW(channel->wait(ticket));
  }
}

TEST_P(ChannelFaults, AChannelThatIsBrokenSaysSo) {
  Faults faults;
  faults.breaks_at_end = true;
  FileChannelOptions chosen = options();
  chosen.around_transfers = [&](auto real) {
    return std::make_unique<FaultyTransfers>(std::move(real), faults);
  };
  const auto memory = std::make_unique<Block>(64 * KiB, 1);
  const auto channel = open_file_channel(chosen);
  const Channel::Ticket first = channel->write(0, memory->data(), memory->bytes());
  const std::string message = error_of([&] { channel->wait(first); });
  EXPECT_TRUE(has(message, "failed for good: the ring is gone")) << message;
  channel->drain();
  EXPECT_NO_THROW(channel->wait(first));
  EXPECT_THROW(channel->wait(channel->write(0, memory->data(), memory->bytes())), Error);
}

TEST_P(ChannelFaults, FoldersInWhichNoFileCanBeMadeAreNamed) {
  const std::string missing = error_of([&] { open_file_channel(options("/nowhere/at/all")); });
  EXPECT_TRUE(has(missing, "'/nowhere/at/all': No such file or directory")) << missing;
  EXPECT_TRUE(has(missing, "name another one")) << missing;

  const std::string file = ::testing::TempDir() + "remat_not_a_folder_" + std::to_string(getpid());
  std::ofstream(file) << "x";
  const std::string no_folder = error_of([&] { open_file_channel(options(file)); });
  EXPECT_TRUE(has(no_folder, "Not a directory")) << no_folder;
  std::filesystem::remove(file);

  const std::string closed = ::testing::TempDir() + "remat_closed_" + std::to_string(getpid());
  ASSERT_EQ(mkdir(closed.c_str(), 0500), 0);
  const int before = setfsuid(65534);  // root may write everywhere
  const std::string not_ours = error_of([&] { open_file_channel(options(closed)); });
  setfsuid(static_cast<uid_t>(before));
  EXPECT_TRUE(has(not_ours, "Permission denied")) << not_ours;
  std::filesystem::remove(closed);
}

TEST_P(ChannelFaults, RoomThatIsNotThereIsAnErrorBeforehand) {
  const SmallDisk disk(MiB);
  if (!disk.made()) {
    REMAT_SKIP("a file system of limited size cannot be mounted here: " << disk.why_not());
  }
  FileChannelOptions chosen = options(disk.folder());
  const auto channel = open_file_channel(chosen);
  const Block block(256 * KiB, 1);
  Block found(block.bytes(), 2);
  channel->wait(channel->write(0, block.data(), block.bytes()));
  const std::string message = error_of([&] { channel->reserve(4 * MiB); });
  EXPECT_TRUE(has(message, "[offload] 4 MiB cannot be reserved in '" + disk.folder() + "'"))
      << message;
  EXPECT_TRUE(has(message, "No space left")) << message;
  EXPECT_TRUE(has(message, "free")) << message;
  channel->reserve(768 * KiB);
  channel->wait(channel->write(512 * KiB, block.data(), block.bytes()));
  channel->wait(channel->read(0, found.data(), found.bytes()));
  EXPECT_TRUE(found == block);
  chosen.reserve_bytes = 4 * MiB;
  EXPECT_THROW(open_file_channel(chosen), Error);
}

TEST_P(ChannelFaults, ADiskThatFillsUpInTheMiddleLosesOnlyWhatDoesNotFit) {
  const SmallDisk disk(MiB);
  if (!disk.made()) {
    REMAT_SKIP("a file system of limited size cannot be mounted here: " << disk.why_not());
  }
  const auto channel = open_file_channel(options(disk.folder()));
  EXPECT_TRUE(channel->facts().in_memory);
  const Block first(512 * KiB, 1);
  const Block large(2 * MiB, 2);
  Block found(first.bytes(), 3);
  channel->write(0, first.data(), first.bytes());
  const Channel::Ticket failing = channel->write(first.bytes(), large.data(), large.bytes());
  channel->wait(channel->read(0, found.data(), found.bytes()));
  EXPECT_TRUE(found == first);
  const std::string message = error_of([&] { channel->wait(failing); });
  EXPECT_TRUE(has(message, "No space left")) << message;
  EXPECT_TRUE(has(message, disk.folder())) << message;
  channel->wait(channel->write(first.bytes(), large.data(), 256 * KiB));
  channel->wait(channel->read(first.bytes(), found.data(), 256 * KiB));
  EXPECT_EQ(std::memcmp(found.data(), large.data(), 256 * KiB), 0);
}

TEST_P(ChannelFaults, AFileSystemWithoutDirectAccessIsUsedThroughThePageCache) {
  const SmallDisk disk(MiB, "ramfs");
  if (!disk.made()) {
    REMAT_SKIP("a file system without direct I/O cannot be mounted here: " << disk.why_not());
  }
  const auto channel = open_file_channel(options(disk.folder()));
  EXPECT_FALSE(channel->facts().direct);
  EXPECT_EQ(has(channel->facts().why_not_direct, "direct I/O"), GetParam().direct);
  EXPECT_TRUE(channel->facts().in_memory);
  const Block block(256 * KiB, 1);
  Block found(block.bytes(), 2);
  channel->write(0, block.data(), block.bytes());
  channel->wait(channel->read(0, found.data(), found.bytes()));
  EXPECT_TRUE(found == block);
  channel->reserve(MiB);
}

TEST_P(ChannelFaults, WithoutDirectAccessAndNamelessFilesItWorksWithAnyAlignment) {
  FileChannelOptions chosen = options();
  chosen.without_direct = true;
  chosen.without_nameless_files = true;
  const auto channel = open_file_channel(chosen);
  EXPECT_FALSE(channel->facts().direct);
  EXPECT_EQ(channel->alignment_bytes(), 1);
  const Block block(MiB, 1);
  std::vector<char> found(99'999);
  channel->write(7, block.data() + 3, 99'999);  // no alignment is asked for
  channel->wait(channel->read(7, found.data(), 99'999));
  EXPECT_EQ(std::memcmp(found.data(), block.data() + 3, found.size()), 0);
}

// As in a container whose filter forbids it.
TEST_P(ChannelFaults, WhereIoUringIsForbiddenBlockingCallsAreUsed) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    sock_filter refuse_rings[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                                  BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_io_uring_setup, 0, 1),
                                  BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
                                  BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    const sock_fprog program = {4, refuse_rings};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
      _exit(2);
    }
    const auto channel = open_file_channel(options());
    const Block block(256 * KiB, 1);
    Block found(block.bytes(), 2);
    channel->write(0, block.data(), block.bytes());
    channel->wait(channel->read(0, found.data(), found.bytes()));
    const bool told = GetParam().uring != channel->facts().why_no_uring.empty();
    _exit(!channel->facts().uring && told && found == block ? 0 : 1);
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 2) {
    REMAT_SKIP("system calls cannot be filtered here");
  }
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

INSTANTIATE_TEST_SUITE_P(Files, ChannelFaults, ::testing::ValuesIn(kWays),
                         [](const auto& each) { return std::string(each.param.name); });

}  // namespace
}  // namespace remat::testing
