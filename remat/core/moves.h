// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string_view>

#include "remat/core/graph.h"

namespace remat {

// Moves: what a plan can do with a value besides keeping it and making it again. They stand in an order
// between the ops, with numbers after theirs, as often as a plan wants them and never if it does not.
//
//     order        f1    pack m    f2 ...... b2    unpack m    b1
//     m            ├────────┤                          ├───────┤      unpack creates a fresh copy
//     m~ (packed)           ├──────────────────────────┤
//
//     order        f1    f2    f3    offload a  .....   prefetch a    b3    b2    b1
//     a            ├──────────────────┤                     ├────────────────────┤
//     channel            ▒▒▒▒▒▒▒▒▒▒▒▒▒                      ▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒
//
// The write of an offload begins after the last use of the copy before it (f1), and has ended where the offload
// stands: there the copy is freed. A prefetch takes the bytes and begins to read; the op that uses them first
// waits (b1). A value is idle where it is packed or away: a read in between would
// need another copy. An op that can read packed bytes has a move of its own, read_packed, which stands
// in its place.

inline constexpr char kPackedMark = '~';   // m~ is m, packed
inline constexpr char kAwayMark = '^';     // m^ is m, on the channel

std::string_view name(MoveKind kind);

// Makes `moves` and `forms` from packed_forms and channel. A storage can be offloaded, at its last
// version, if an op reads that and a transfer takes longer than the latency. Linear in the size of the
// graph.
void add_moves(Graph& graph);

// The op behind a step: itself; of a move, the op that made the value; of read_packed, the op that it is.
OpId op_behind(const Graph& graph, OpId id);

// What an order does beyond running every op once.
struct OrderCounts {
  int64_t recomputed_ops = 0;
  int64_t packed_values = 0;
  int64_t offloaded_values = 0;
  int64_t offloaded_bytes = 0;
};
OrderCounts count_extra(const Graph& graph, std::span<const OpId> order);

// The same step with fewer kinds of moves, or none.
Graph with_moves(const Graph& graph, bool pack, bool offload);
Graph without_moves(const Graph& graph);

}  // namespace remat
