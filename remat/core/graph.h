// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace remat {

// A training step as ops over storages.
//
// A *storage* is a block of bytes; an op *reads* storages, *updates* storages in place and *creates*
// storages. A *value* is a storage at a version: 0 after its creator, one more after every update.
// Views own no bytes, so they do not appear here. Lifetimes follow from the ops alone:
//
//     op    conv    bn      relu_   fc      d_fc    d_relu  d_bn
//     a1    c───────r───────────────────────────────────────r        freed after d_bn
//     a2            c@0─────u@1─────r@1─────r@1─────r@1              version 1 from relu_ on
//     y                             c───────r                        freed after d_fc
//
// (c creates, r reads, u updates.) To have a2@1 again, one must run bn and then relu_, into a fresh
// storage; running relu_ on the a2 that is there would be a different value.
//
// Externals (parameters, buffers, inputs) live before and after the step. An op may also change
// externals as a side effect (*effects*, BatchNorm's running statistics): a re-run leaves them alone.

enum class OpId : int32_t {};
enum class StorageId : int32_t {};

constexpr size_t index(OpId id) { return static_cast<size_t>(id); }
constexpr size_t index(StorageId id) { return static_cast<size_t>(id); }

enum class Role : uint8_t {
  param,
  buffer,
  input,
  activation,
  gradient,
  optimizer_state,
  temporary,
};
inline constexpr size_t kRoleCount = 7;
std::string_view name(Role role);
std::optional<Role> role_named(std::string_view name);

enum class Phase : uint8_t { forward, backward, optimizer };
std::string_view name(Phase phase);
std::optional<Phase> phase_named(std::string_view name);

// A storage at a version. Externals start at version 0 too; updates and effects count them up.
struct Value {
  StorageId storage{};
  int32_t version = 0;
  bool operator==(const Value&) const = default;
};

struct Storage {
  std::string name;
  int64_t bytes = 0;
  // Externals say theirs. For the others it follows from use: activation if made in forward and
  // needed later (or an output), gradient if made in backward and needed after it, else temporary.
  Role role = Role::temporary;
  std::optional<OpId> creator;  // none: external
  std::vector<OpId> changers;   // the ops that make version 1, 2, ... (updates and effects)
  bool output = false;          // survives the step, at its last version

  bool external() const { return !creator.has_value(); }
  // The version it has in the given order when `op` begins.
  int32_t version_before(OpId op) const;
  bool operator==(const Storage&) const = default;
};

// `result` may be written over `source`, where nothing later in the schedule needs `source`.
struct Reuse {
  StorageId result{};
  StorageId source{};
  bool operator==(const Reuse&) const = default;
};

struct Op {
  std::string name;  // unique in the graph
  Phase phase = Phase::forward;
  std::string kind;   // "aten::convolution"
  std::string scope;  // the layer, for reports; may be empty
  int64_t time_ns = 0;
  int64_t workspace_bytes = 0;     // needed only while the op runs
  std::vector<Value> reads;        // at the version they have at this point of the step
  std::vector<Value> updates;      // at the version *before* this op
  std::vector<StorageId> creates;  // at version 0
  std::vector<Value> effects;      // externals changed on the side; version before this op
  std::vector<Reuse> reuse;
  bool random = false;  // draws from the generator; a re-run gets the state of the first run
  bool once = false;    // must never be re-run

  bool operator==(const Op&) const = default;
};

// How a value, a storage at its last version, can be kept in fewer bytes. The same bits come back from
// the packed bytes, or all that `readers` look at does.
struct PackedForm {
  StorageId storage{};
  std::string rule;  // how, for what runs the step: "two_values"
  int64_t bytes = 0;
  int64_t pack_ns = 0;
  std::optional<int64_t> unpack_ns;  // none: it cannot be unpacked, only `readers` can use it
  std::vector<OpId> readers;         // can read the packed bytes in place of the value
  bool operator==(const PackedForm&) const = default;
};

// The most bytes, or nanoseconds, that a graph may add up to: exact in a double (JSON), and far from overflow
// however often ops are repeated.
inline constexpr int64_t kLargestSum = (int64_t{1} << 53) - 1;

// Another place for values that are idle: a disk, the memory of a host. One transfer after the other,
// in the order in which they begin, beside the ops; each takes the latency and its bytes' time.
struct ChannelModel {
  int64_t write_bytes_per_s = 0;
  int64_t read_bytes_per_s = 0;
  int64_t latency_ns = 0;
  int64_t alignment = 1;  // of the addresses and sizes it takes, a power of two
  int64_t write_ns(int64_t bytes) const { return latency_ns + transfer_ns(bytes, write_bytes_per_s); }
  int64_t read_ns(int64_t bytes) const { return latency_ns + transfer_ns(bytes, read_bytes_per_s); }
  bool operator==(const ChannelModel&) const = default;

 private:
  static int64_t transfer_ns(int64_t bytes, int64_t bytes_per_s);
};

// What can be done with a value besides keeping it and making it again: see moves.h.
enum class MoveKind : uint8_t { pack, unpack, offload, prefetch, read_packed };
// Whether it goes over the channel.
constexpr bool is_transfer(MoveKind kind) { return kind == MoveKind::offload || kind == MoveKind::prefetch; }
struct Move {
  MoveKind kind{};
  Value value;     // that is moved
  OpId reader{};   // read_packed: the op that this one is, but for what it reads
  Op op;           // what it reads and creates; unpack and prefetch create the value, at its version
  bool operator==(const Move&) const = default;
};

// Ops in the order in which they were given, a legal order. Storages: externals first, in order of
// declaration, then the others in order of creation. Build one with GraphBuilder or parse_graph.
struct Graph {
  std::vector<Storage> storages;
  std::vector<Op> ops;
  std::vector<StorageId> outputs;
  size_t external_count = 0;

  // Moves are numbered after the ops, packed and offloaded forms of storages after the storages.
  // `moves` and `forms` follow from the other two (moves.h).
  std::vector<PackedForm> packed_forms;
  std::optional<ChannelModel> channel;
  std::vector<Move> moves;
  std::vector<Storage> forms;

  const Op& op(OpId id) const {
    return is_move(id) ? move(id).op : ops[index(id)];
  }
  const Storage& storage(StorageId id) const {
    return is_form(id) ? forms[index(id) - storages.size()] : storages[index(id)];
  }
  bool is_move(OpId id) const { return index(id) >= ops.size(); }
  bool is_form(StorageId id) const { return index(id) >= storages.size(); }
  const Move& move(OpId id) const { return moves[index(id) - ops.size()]; }
  bool is_transfer(OpId id) const { return is_move(id) && remat::is_transfer(move(id).kind); }
  size_t op_count() const { return ops.size() + moves.size(); }  // moves included
  size_t storage_count() const { return storages.size() + forms.size(); }
  // The op itself, or the one of which a read_packed is another form.
  OpId original(OpId id) const {
    return is_move(id) && move(id).kind == MoveKind::read_packed ? move(id).reader : id;
  }
  // The version that a storage has when this op or move has created it.
  int32_t created_version(OpId id) const;
  int64_t external_bytes() const;
  int64_t total_time_ns() const;  // of every op once
  // The version a storage has when the step is over.
  int32_t last_version(StorageId id) const {
    return static_cast<int32_t>(storage(id).changers.size());
  }
  // False for `once` ops and for ops that update an external: a second run would change the world.
  bool rerunnable(OpId id) const;

  bool operator==(const Graph&) const = default;
};

// Every op once, in the order given.
std::vector<OpId> given_order(const Graph& graph);

// What the step's end needs: the outputs, at their last version. Externals are there in any case.
std::vector<Value> output_values(const Graph& graph);
bool is_output(const Graph& graph, const Value& value);

// The op that makes the next version of what the value is a version of; none for the last.
std::optional<OpId> next_change(const Graph& graph, const Value& value);

}  // namespace remat
