// SPDX-License-Identifier: Apache-2.0
#include "remat/libtorch/spill_pool.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <vector>

#include "remat/core/error.h"
#include "remat/core/units.h"
#include "remat/libtorch/spill_file.h"
#include "tests/libtorch/small_disk.h"
#include "tests/libtorch/spill_files.h"
#include "tests/libtorch/testing.h"

namespace {
int write_back_error = 0;  // with which writing the page cache fails; 0: it does not
}  // namespace

// In place of the C library's.
extern "C" int sync_file_range(int file, off64_t offset, off64_t bytes, unsigned flags) {
  if (write_back_error != 0) {
    errno = write_back_error;
    return -1;
  }
  return static_cast<int>(syscall(SYS_sync_file_range, file, offset, bytes, flags));
}

namespace remat::testing {
namespace {

using detail::SpillPool;

constexpr int64_t kBlock = MiB;

std::shared_ptr<SpillPool> make_pool(int64_t limit_bytes, std::string folder = ::testing::TempDir()) {
  return SpillPool::make(std::move(folder), limit_bytes);
}

char* new_block(SpillPool& pool, int fill) {
  auto* const block = static_cast<char*>(pool.answer(kBlock));
  std::memset(block, fill, kBlock);
  return block;
}

bool holds(const char* block, int fill) {
  return std::all_of(block, block + kBlock, [&](char byte) { return byte == static_cast<char>(fill); });
}

void use(SpillPool& pool, const void* block) { pool.use({&block, 1}); }

// What goes wrong when the page cache writes what it took was lost: pages were dropped, and came back as the disk had
// them.
TEST(SpillFile, ADiskThatFailsWhenThePageCacheIsWrittenIsAnError) {
  constexpr int64_t kBytes = 2 * 4096;
  detail::SpillFile file(::testing::TempDir(), /*direct=*/false);
  auto* const pages = static_cast<char*>(
      mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  std::memset(pages, 7, kBytes);
  for (const int error : {EIO, ENOSPC}) {
    write_back_error = error;
    try {
      file.put(0, pages, kBytes);
      ADD_FAILURE() << "no error";
    } catch (const Error& found) {
      EXPECT_NE(std::string(found.what()).find(std::strerror(error)), std::string::npos) << found.what();
    }
    EXPECT_EQ(pages[kBytes - 1], 7);
  }
  for (const int error : {ENOSYS, EINVAL, ESPIPE, 0}) {  // that it cannot be waited for is no failure
    write_back_error = error;
    EXPECT_NO_THROW(file.put(0, pages, kBytes));
    EXPECT_EQ(pages[kBytes - 1], 7);
    EXPECT_NO_THROW(file.load(0, pages, kBytes));
  }
  munmap(pages, kBytes);
}

TEST(SpillPool, KeepsWhatWasUsedLastInMemoryAndEveryByteOfAll) {
  const auto pool = make_pool(3 * kBlock);
  std::vector<char*> blocks;
  for (int i = 0; i < 8; ++i) {
    use(*pool, nullptr);
    blocks.push_back(new_block(*pool, i + 1));
    EXPECT_LE(pool->counts().resident_bytes, 3 * kBlock);
  }
  EXPECT_EQ(pool->counts().spilled_bytes, 5 * kBlock);
  EXPECT_EQ(pool->counts().written_bytes, 5 * kBlock);
  EXPECT_EQ(pool->counts().peak_resident_bytes, 3 * kBlock);
  for (int i = 0; i < 8; ++i) {
    EXPECT_TRUE(holds(blocks[i], i + 1)) << i;  // read where it is, in the file or not
  }
  use(*pool, blocks[0]);
  EXPECT_EQ(pool->counts().spilled_bytes, 5 * kBlock);
  for (char* const block : blocks) {
    pool->release(block);
  }
  EXPECT_EQ(pool->counts().resident_bytes, 0);
  EXPECT_EQ(pool->counts().spilled_bytes, 0);
}

TEST(SpillPool, WritesToABlockAreKeptWhereverItIs) {
  const auto pool = make_pool(kBlock);
  char* const first = new_block(*pool, 1);
  use(*pool, nullptr);
  char* const second = new_block(*pool, 2);  // the first goes to the file
  ASSERT_EQ(pool->counts().spilled_bytes, kBlock);
  std::memset(first, 3, kBlock);  // through the mapping
  use(*pool, first);
  EXPECT_TRUE(holds(first, 3));
  std::memset(first, 4, kBlock);
  use(*pool, second);
  EXPECT_TRUE(holds(first, 4));
  EXPECT_TRUE(holds(second, 2));
  pool->release(first);
  pool->release(second);
}

TEST(SpillPool, WhatAnOpUsesStaysEvenIfItIsMoreThanTheLimit) {
  const auto pool = make_pool(kBlock);
  std::vector<const void*> blocks;
  for (int i = 0; i < 3; ++i) {
    blocks.push_back(new_block(*pool, i));
  }
  pool->use(blocks);
  EXPECT_EQ(pool->counts().resident_bytes, 3 * kBlock);
  pool->set_limit(kBlock);
  EXPECT_EQ(pool->counts().resident_bytes, kBlock);
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(holds(static_cast<const char*>(blocks[i]), i));
    pool->release(const_cast<void*>(blocks[i]));
  }
}

TEST(SpillPool, ALongListOfOperandsIsReadWhereItIs) {
  const auto pool = make_pool(2 * kBlock);
  std::vector<const void*> blocks;
  for (int i = 0; i < 24; ++i) {
    use(*pool, nullptr);
    blocks.push_back(new_block(*pool, i));
  }
  pool->use(blocks);
  EXPECT_LE(pool->counts().resident_bytes, 11 * kBlock);
  for (int i = 0; i < 24; ++i) {
    EXPECT_TRUE(holds(static_cast<const char*>(blocks[static_cast<size_t>(i)]), i));
    pool->release(const_cast<void*>(blocks[static_cast<size_t>(i)]));
  }
}

TEST(SpillPool, LeavesSmallRequestsAlone) {
  EXPECT_EQ(make_pool(kBlock)->answer(100), nullptr);
}

TEST(SpillPool, LivesForAsLongAsABlockDoes) {
  std::weak_ptr<SpillPool> weak;
  char* block = nullptr;
  {
    const auto pool = make_pool(kBlock);
    weak = pool;
    block = new_block(*pool, 7);
  }
  ASSERT_FALSE(weak.expired());
  EXPECT_TRUE(holds(block, 7));
  weak.lock()->release(block);
  EXPECT_TRUE(weak.expired());
}

TEST(SpillPool, AddressesAreUsedAgain) {
  const auto pool = make_pool(4 * kBlock);
  char* const kept = new_block(*pool, 1);
  char* const gone = new_block(*pool, 2);
  pool->release(gone);
  EXPECT_EQ(new_block(*pool, 3), gone);
  pool->release(gone);
  pool->release(kept);
}

TEST(SpillPool, AFolderThatIsNotThereIsNamed) {
  const auto pool = make_pool(kBlock, "/nowhere/at/all");
  char* const first = new_block(*pool, 1);
  use(*pool, nullptr);
  try {
    pool->answer(kBlock);
    FAIL() << "a file was made in a folder that does not exist";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("'/nowhere/at/all'"), std::string::npos) << error.what();
  }
  EXPECT_TRUE(holds(first, 1));
  pool->release(first);
}

TEST(SpillPool, ADiskThatIsFullIsAnErrorAndLosesNothing) {
  const SmallDisk disk(2 * kBlock);
  if (!disk.made()) {
    REMAT_SKIP("a file system of limited size cannot be mounted here: " << disk.why_not());
  }
  const auto pool = make_pool(kBlock, disk.folder());
  std::vector<char*> blocks;
  std::string message;
  for (int i = 0; i < 8 && message.empty(); ++i) {
    use(*pool, nullptr);
    try {
      blocks.push_back(new_block(*pool, i + 1));
    } catch (const Error& error) {
      message = error.what();
    }
  }
  EXPECT_EQ(blocks.size(), 3u);  // one in memory, two in the file
  EXPECT_NE(message.find("No space left"), std::string::npos) << message;
  EXPECT_NE(message.find("spill_folder"), std::string::npos) << message;
  for (size_t i = 0; i < blocks.size(); ++i) {
    EXPECT_TRUE(holds(blocks[i], static_cast<int>(i) + 1)) << i;
  }
  for (char* const block : blocks) {
    pool->release(block);
  }
}

// A read of a page that the file no longer has would end the process with SIGBUS.
TEST(SpillPool, AFileThatIsCutShortIsAnErrorNotASignal) {
  const auto pool = make_pool(kBlock);
  std::vector<char*> blocks;
  for (int i = 0; i < 4; ++i) {
    use(*pool, nullptr);
    blocks.push_back(new_block(*pool, i + 1));
  }
  EXPECT_NO_THROW(pool->check());
  ASSERT_EQ(cut_spill_files(), 1);
  EXPECT_FALSE(pool->failed());  // nobody has noticed
  EXPECT_TRUE(holds(blocks[0], 0));
  EXPECT_TRUE(pool->failed());
  EXPECT_THROW(pool->check(), Error);
  EXPECT_THROW(pool->answer(kBlock), Error);
  EXPECT_FALSE(pool->use_or_read(blocks[1]));
  EXPECT_TRUE(pool->use_or_read(blocks[3]));  // in memory
  EXPECT_TRUE(holds(blocks[3], 4));
  for (char* const block : blocks) {
    pool->release(block);
  }
}

TEST(SpillPool, AFileThatIsCutShortIsNamedWhereABlockIsBroughtBack) {
  const auto pool = make_pool(kBlock);
  char* const first = new_block(*pool, 1);
  use(*pool, nullptr);
  char* const second = new_block(*pool, 2);
  ASSERT_EQ(cut_spill_files(), 1);
  try {
    use(*pool, first);
    FAIL() << "a block was read from a file without it";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("was cut to"), std::string::npos) << error.what();
  }
  EXPECT_TRUE(pool->failed());
  pool->release(first);
  pool->release(second);
}

// A fault that is not the pool's ends the process as ever.
TEST(SpillPool, OtherBusErrorsAreNotSwallowed) {
  const auto pool = make_pool(kBlock);
  char* const first = new_block(*pool, 1);
  use(*pool, nullptr);
  char* const second = new_block(*pool, 2);  // there is a file, and a handler
  EXPECT_DEATH(
      {
        const std::string path = ::testing::TempDir() + "remat_bus_" + std::to_string(getpid());
        const int file = open(path.c_str(), O_CREAT | O_RDWR, 0600);
        unlink(path.c_str());
        auto* const mapped = static_cast<volatile char*>(
            mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0));
        *mapped = 1;  // the file has no such page
      },
      "");
  pool->release(first);
  pool->release(second);
}

// What is left can still be read: undoing a step must not need room.
TEST(SpillPool, AfterAFullDiskEverythingIsReadWhereItIs) {
  const SmallDisk disk(2 * kBlock);
  if (!disk.made()) {
    REMAT_SKIP("a file system of limited size cannot be mounted here: " << disk.why_not());
  }
  const auto pool = make_pool(kBlock, disk.folder());
  std::vector<char*> blocks;
  for (int i = 0; i < 3; ++i) {
    use(*pool, nullptr);
    blocks.push_back(new_block(*pool, i + 1));
  }
  use(*pool, nullptr);
  EXPECT_THROW(pool->answer(kBlock), Error);
  EXPECT_TRUE(pool->failed());
  for (size_t i = 0; i < blocks.size(); ++i) {
    EXPECT_TRUE(pool->use_or_read(blocks[i]));
    EXPECT_TRUE(holds(blocks[i], static_cast<int>(i) + 1));
    std::memset(blocks[i], 9, kBlock);
    EXPECT_TRUE(holds(blocks[i], 9));
    pool->release(blocks[i]);
  }
}

}  // namespace
}  // namespace remat::testing
