// SPDX-License-Identifier: Apache-2.0
#include "remat/libtorch/request_queue.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <vector>

namespace remat::testing {
namespace {

using detail::RequestQueue;
using detail::Transfer;
using Fault = RequestQueue::Fault;

constexpr int64_t kPiece = 100;
char memory[10000];

// Pieces of 100 bytes, which go on at multiples of 10, four at once.
struct Queue {
  RequestQueue queue{kPiece, 10, 4};
  int64_t last_ticket = 0;

  void push(Transfer::Kind kind, int64_t offset, int64_t bytes, int64_t at = -1) {
    ++last_ticket;
    char* const where = memory + (at >= 0 ? at : last_ticket * 1000 - 1000);
    queue.push({last_ticket, {kind, offset, where, bytes}});
  }
  void write(int64_t offset, int64_t bytes, int64_t at = -1) {
    push(Transfer::Kind::write, offset, bytes, at);
  }
  void read(int64_t offset, int64_t bytes, int64_t at = -1) {
    push(Transfer::Kind::read, offset, bytes, at);
  }
  std::vector<RequestQueue::Piece> begin_all() {
    std::vector<RequestQueue::Piece> begun;
    while (const auto piece = queue.next()) {
      begun.push_back(*piece);
    }
    return begun;
  }
  void end(const RequestQueue::Piece& piece) { queue.ended({piece.id, piece.transfer.bytes}); }
};

TEST(RequestQueue, CutsRequestsAndHasAtMostDepthPiecesUnderWay) {
  Queue q;
  q.write(1000, 550);
  const auto begun = q.begin_all();
  ASSERT_EQ(begun.size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(begun[i].transfer.offset, 1000 + 100 * static_cast<int64_t>(i));
    EXPECT_EQ(begun[i].transfer.memory, memory + 100 * i);
  }
  q.end(begun[3]);
  EXPECT_EQ(q.begin_all().size(), 1u);
  q.end(begun[0]);
  const auto last = q.begin_all();
  ASSERT_EQ(last.size(), 1u);
  EXPECT_EQ(last[0].transfer.bytes, 50);
  EXPECT_FALSE(q.queue.pop().has_value());
  EXPECT_TRUE(q.queue.busy());
}

TEST(RequestQueue, RequestsLeaveInOrderHoweverTheirPiecesEnd) {
  Queue q;
  q.write(0, 100);
  q.write(100, 100);
  q.read(200, 100);
  const auto begun = q.begin_all();
  ASSERT_EQ(begun.size(), 3u);
  q.end(begun[2]);
  q.end(begun[1]);
  EXPECT_FALSE(q.queue.pop().has_value());
  q.end(begun[0]);
  for (int64_t ticket = 1; ticket <= 3; ++ticket) {
    const auto outcome = q.queue.pop();
    ASSERT_TRUE(outcome.has_value());
    EXPECT_EQ(outcome->request.ticket, ticket);
    EXPECT_EQ(outcome->fault, Fault::none);
  }
  EXPECT_FALSE(q.queue.busy());
}

TEST(RequestQueue, APieceWaitsForThoseThatTouchItsBytesOfTheFile) {
  Queue q;
  q.write(0, 200);
  q.read(150, 100);  // half of it is being written
  q.read(500, 100);  // behind it, in order
  const auto writes = q.begin_all();
  ASSERT_EQ(writes.size(), 2u);
  q.end(writes[0]);
  EXPECT_TRUE(q.begin_all().empty());
  q.end(writes[1]);
  EXPECT_EQ(q.begin_all().size(), 2u);

  Queue reads;
  reads.read(0, 100);
  reads.read(0, 100);
  EXPECT_EQ(reads.begin_all().size(), 2u);
  reads.write(50, 100);
  EXPECT_TRUE(reads.begin_all().empty());
}

TEST(RequestQueue, APieceWaitsForThoseThatTouchItsMemory) {
  Queue q;
  q.write(0, 100, 0);
  q.write(100, 100, 0);  // from the same memory: both only read it
  q.read(200, 100, 50);
  const auto writes = q.begin_all();
  ASSERT_EQ(writes.size(), 2u);
  q.end(writes[0]);
  EXPECT_TRUE(q.begin_all().empty());
  q.end(writes[1]);
  EXPECT_EQ(q.begin_all().size(), 1u);
  q.write(300, 100, 100);
  EXPECT_TRUE(q.begin_all().empty());
}

TEST(RequestQueue, ShortTransfersGoOnAtAnAlignedPlace) {
  Queue q;
  q.write(0, 100);
  auto begun = q.begin_all();
  ASSERT_EQ(begun.size(), 1u);
  q.queue.ended({begun[0].id, 37});
  EXPECT_FALSE(q.queue.pop().has_value());
  begun = q.begin_all();
  ASSERT_EQ(begun.size(), 1u);
  EXPECT_EQ(begun[0].transfer.offset, 30);
  EXPECT_EQ(begun[0].transfer.memory, memory + 30);
  EXPECT_EQ(begun[0].transfer.bytes, 70);
  q.queue.ended({begun[0].id, -EINTR});
  begun = q.begin_all();
  ASSERT_EQ(begun.size(), 1u);
  EXPECT_EQ(begun[0].transfer.bytes, 70);
  q.end(begun[0]);
  EXPECT_EQ(q.queue.pop()->fault, Fault::none);
}

TEST(RequestQueue, WhatNeverMovesIsGivenUp) {
  for (const int64_t result : {int64_t{9}, int64_t{-EAGAIN}}) {
    Queue q;
    q.read(0, 100);
    int64_t calls = 0;
    while (const auto piece = q.queue.next()) {
      ASSERT_LT(++calls, 1000);
      q.queue.ended({piece->id, result});
    }
    const auto outcome = q.queue.pop();
    ASSERT_TRUE(outcome.has_value());
    EXPECT_EQ(outcome->fault, Fault::system);
    EXPECT_EQ(outcome->error, result < 0 ? EAGAIN : EIO);
  }
}

TEST(RequestQueue, NothingReadIsTheEndAndNothingWrittenAFullDisk) {
  Queue q;
  q.read(0, 100);
  q.write(100, 100);
  const auto begun = q.begin_all();
  ASSERT_EQ(begun.size(), 2u);
  q.queue.ended({begun[0].id, 0});
  q.queue.ended({begun[1].id, 0});
  EXPECT_EQ(q.queue.pop()->fault, Fault::too_short);
  EXPECT_EQ(q.queue.pop()->error, ENOSPC);
}

TEST(RequestQueue, AfterAFailureNoMoreOfTheRequestBeginsAndOthersDo) {
  Queue q;
  q.write(0, 1000);
  q.write(2000, 100);
  const auto begun = q.begin_all();
  ASSERT_EQ(begun.size(), 4u);
  q.queue.ended({begun[1].id, -EIO});
  const auto next = q.begin_all();
  ASSERT_EQ(next.size(), 1u);
  EXPECT_EQ(next[0].transfer.offset, 2000);
  q.queue.ended({begun[2].id, -ENOSPC});
  q.end(begun[0]);
  EXPECT_FALSE(q.queue.pop().has_value());  // its memory is still being read
  q.end(begun[3]);
  const auto outcome = q.queue.pop();
  ASSERT_TRUE(outcome.has_value());
  EXPECT_EQ(outcome->error, EIO);  // the first
  q.end(next[0]);
  EXPECT_EQ(q.queue.pop()->fault, Fault::none);
}

TEST(RequestQueue, WhatCouldNotBeWrittenCannotBeReadUntilItIs) {
  Queue q;
  q.write(0, 600);
  const auto begun = q.begin_all();
  q.queue.ended({begun[1].id, -ENOSPC});
  q.read(100, 10);  // of the piece that failed
  q.read(590, 10);  // of one that never began
  q.read(600, 10);  // beside it
  q.write(100, 50);
  q.read(100, 50);  // written again
  q.read(140, 20);  // only half of it
  for (const size_t i : {0, 2, 3}) {
    q.end(begun[i]);
  }
  for (int rounds = 0; rounds < 10; ++rounds) {
    for (const auto& piece : q.begin_all()) {
      q.end(piece);
    }
  }
  const std::vector<Fault> expected = {Fault::system, Fault::lost, Fault::lost, Fault::none,
                                       Fault::none,   Fault::none, Fault::lost};
  for (const Fault fault : expected) {
    const auto outcome = q.queue.pop();
    ASSERT_TRUE(outcome.has_value());
    EXPECT_EQ(outcome->fault, fault) << outcome->request.ticket;
    EXPECT_EQ(outcome->error, fault == Fault::none ? 0 : ENOSPC);
  }
}

TEST(RequestQueue, StoppedLetsNothingBegin) {
  Queue q;
  q.write(0, 600);
  EXPECT_EQ(q.begin_all().size(), 4u);
  q.write(1000, 100);
  q.queue.stop();
  EXPECT_TRUE(q.begin_all().empty());
  EXPECT_EQ(q.queue.under_way(), 4);
}

}  // namespace
}  // namespace remat::testing
