// SPDX-License-Identifier: Apache-2.0
#include "remat/libtorch/request_queue.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "remat/core/error.h"

namespace remat::detail {
namespace {

// A call that moves nothing is repeated this often.
constexpr int64_t kMostStalls = 100;

bool overlap(int64_t begin, int64_t end, int64_t other_begin, int64_t other_end) {
  return begin < other_end && other_begin < end;
}

}  // namespace

RequestQueue::RequestQueue(int64_t piece_bytes, int64_t alignment_bytes, int64_t depth)
    : piece_bytes_(piece_bytes), alignment_bytes_(alignment_bytes), depth_(depth) {
  REMAT_ASSERT(piece_bytes > 0 && piece_bytes % alignment_bytes == 0 && depth > 0);
}

void RequestQueue::push(const Request& request) {
  REMAT_ASSERT(open_.empty() || request.ticket == open_.back().request.ticket + 1);
  open_.push_back({request});
}

RequestQueue::Open& RequestQueue::find(Channel::Ticket ticket) {
  return open_[static_cast<size_t>(ticket - open_.front().request.ticket)];
}

// Two reads from the same bytes of the file, or two writes from the same memory, do not disturb
// each other.
bool RequestQueue::must_wait(const Transfer& transfer) const {
  return std::ranges::any_of(under_way_, [&](const auto& numbered) {
    const Transfer& other = numbered.second.rest;
    const bool read = transfer.kind == Transfer::Kind::read;
    const bool other_read = other.kind == Transfer::Kind::read;
    const auto memory = reinterpret_cast<intptr_t>(transfer.memory);
    const auto other_memory = reinterpret_cast<intptr_t>(other.memory);
    const bool same_file = overlap(transfer.offset, transfer.offset + transfer.bytes, other.offset,
                                   other.offset + other.bytes);
    const bool same_memory =
        overlap(memory, memory + transfer.bytes, other_memory, other_memory + other.bytes);
    return (same_file && !(read && other_read)) || (same_memory && (read || other_read));
  });
}

bool RequestQueue::can_go_on(const Begun& piece, int64_t result) {
  return piece.stalls <= kMostStalls && (result > 0 || result == -EINTR || result == -EAGAIN);
}

RequestQueue::Piece RequestQueue::begin(Begun piece) {
  const int64_t id = ++last_id_;
  const Transfer transfer = piece.rest;
  under_way_.emplace(id, std::move(piece));
  return {id, transfer};
}

std::optional<RequestQueue::Piece> RequestQueue::next() {
  if (stopped_ || under_way() >= depth_) {
    return std::nullopt;
  }
  if (!again_.empty()) {  // began in its turn; what came later did not touch its bytes
    const Begun piece = again_.front();
    again_.pop_front();
    return begin(piece);
  }
  const auto open = std::ranges::find_if(open_, [](const Open& each) { return !each.all_begun(); });
  if (open == open_.end()) {
    return std::nullopt;
  }
  Transfer piece = open->request.whole;
  piece.offset += open->begun_bytes;
  piece.memory += open->begun_bytes;
  piece.bytes = std::min(piece_bytes_, piece.bytes - open->begun_bytes);
  if (must_wait(piece)) {
    return std::nullopt;
  }
  if (piece.kind == Transfer::Kind::write) {
    forget_lost(piece);
  } else if (const Lost* const lost = lost_in(piece); lost != nullptr) {
    fail(*open, piece, Fault::lost, lost->error);
    return next();
  }
  open->begun_bytes += piece.bytes;
  ++open->open_pieces;
  return begin({open->request.ticket, piece});
}

void RequestQueue::ended(const FileTransfers::Ended& ended) {
  Begun piece = under_way_.extract(ended.id).mapped();
  Open& open = find(piece.ticket);
  Transfer& rest = piece.rest;
  const int64_t moved = ended.result >= rest.bytes ? rest.bytes
                        : ended.result > 0 ? ended.result / alignment_bytes_ * alignment_bytes_
                                           : 0;
  rest.offset += moved;
  rest.memory += moved;
  rest.bytes -= moved;
  piece.stalls = moved > 0 ? 0 : piece.stalls + 1;
  if (rest.bytes > 0 && open.fault == Fault::none && can_go_on(piece, ended.result)) {
    again_.push_back(piece);
    return;
  }
  --open.open_pieces;
  if (rest.bytes > 0) {
    const bool end_of_file = ended.result == 0 && rest.kind == Transfer::Kind::read;
    const int error = ended.result < 0    ? static_cast<int>(-ended.result)
                      : ended.result == 0 ? ENOSPC
                                          : EIO;
    fail(open, rest, end_of_file ? Fault::too_short : Fault::system, error);
  }
}

std::optional<RequestQueue::Outcome> RequestQueue::pop() {
  if (open_.empty() || open_.front().open_pieces > 0 || !open_.front().all_begun()) {
    return std::nullopt;
  }
  const Open oldest = open_.front();
  open_.pop_front();
  return Outcome{oldest.request, oldest.fault, oldest.error};
}

void RequestQueue::fail(Open& open, const Transfer& missing, Fault fault, int error) {
  const bool first = open.fault == Fault::none;
  if (first) {
    open.fault = fault;
    open.error = error;
  }
  const Transfer& whole = open.request.whole;
  if (whole.kind == Transfer::Kind::write) {
    lost_.push_back({missing.offset, missing.offset + missing.bytes, error});
    if (first && open.begun_bytes < whole.bytes) {  // no more of it will begin
      lost_.push_back({whole.offset + open.begun_bytes, whole.offset + whole.bytes, error});
    }
  }
}

void RequestQueue::forget_lost(const Transfer& write) {
  const int64_t begin = write.offset;
  const int64_t end = write.offset + write.bytes;
  std::vector<Lost> left;
  for (const Lost& each : lost_) {
    if (each.begin < begin) {
      left.push_back({each.begin, std::min(each.end, begin), each.error});
    }
    if (each.end > end) {
      left.push_back({std::max(each.begin, end), each.end, each.error});
    }
  }
  lost_ = std::move(left);
}

const RequestQueue::Lost* RequestQueue::lost_in(const Transfer& read) const {
  const auto found = std::ranges::find_if(lost_, [&](const Lost& each) {
    return overlap(read.offset, read.offset + read.bytes, each.begin, each.end);
  });
  return found == lost_.end() ? nullptr : &*found;
}

}  // namespace remat::detail
