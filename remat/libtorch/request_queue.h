// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <vector>

#include "remat/libtorch/channel.h"
#include "remat/libtorch/file_transfers.h"

namespace remat::detail {

// The requests of a FileChannel, cut into pieces: which piece may begin next, and which requests
// have ended. Pieces begin in order and end in any. One waits for those under way that touch the
// same bytes of the file or of memory, unless both only read them: so it is as if requests were
// served one after the other.
//
//   requests   write A (4 pieces)   read B (2)   read A (4)            depth 4
//   begin      A0 A1 A2 A3          B0 B1        A0 waits for the write of A0, the others behind it
//
class RequestQueue {
 public:
  struct Request {
    Channel::Ticket ticket = 0;
    Transfer whole;
  };
  struct Piece {
    int64_t id = 0;
    Transfer transfer;
  };
  enum class Fault : uint8_t { none, system, too_short, lost };
  struct Outcome {
    Request request;
    Fault fault = Fault::none;
    int error = 0;  // errno; for `lost`, that of the write which failed before
  };

  // Pieces go on at multiples of the alignment after a transfer that moved fewer bytes than asked
  // for.
  RequestQueue(int64_t piece_bytes, int64_t alignment_bytes, int64_t depth);

  void push(const Request& request);
  // A piece that may begin now, if there is one. It is under way until ended() is called with its
  // number.
  std::optional<Piece> next();
  void ended(const FileTransfers::Ended& ended);
  // The oldest request, once it has ended. Requests leave in order.
  std::optional<Outcome> pop();
  // Lets no more pieces begin.
  void stop() { stopped_ = true; }

  // Whether there are requests that have not left.
  bool busy() const { return !open_.empty(); }
  int64_t under_way() const { return static_cast<int64_t>(under_way_.size()); }

 private:
  struct Open {
    Request request;
    int64_t begun_bytes = 0;
    int64_t open_pieces = 0;
    Fault fault = Fault::none;
    int error = 0;

    bool all_begun() const { return fault != Fault::none || begun_bytes == request.whole.bytes; }
  };
  struct Begun {
    Channel::Ticket ticket = 0;
    Transfer rest;
    int64_t stalls = 0;  // in a row, without a byte moved
  };
  struct Lost {
    int64_t begin = 0;
    int64_t end = 0;
    int error = 0;
  };

  Open& find(Channel::Ticket ticket);
  Piece begin(Begun piece);
  bool must_wait(const Transfer& transfer) const;
  static bool can_go_on(const Begun& piece, int64_t result);
  void fail(Open& open, const Transfer& missing, Fault fault, int error);
  // Bytes of the file that a write is about to replace are lost no more.
  void forget_lost(const Transfer& write);
  const Lost* lost_in(const Transfer& read) const;

  int64_t piece_bytes_;
  int64_t alignment_bytes_;
  int64_t depth_;
  bool stopped_ = false;
  std::deque<Open> open_;               // oldest first; tickets count up by one
  std::map<int64_t, Begun> under_way_;  // by number of the piece
  std::deque<Begun> again_;             // pieces of which something is left
  std::vector<Lost> lost_;
  int64_t last_id_ = 0;
};

}  // namespace remat::detail
