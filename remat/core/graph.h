// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
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

// Ops in the order in which they were given, a legal order. Storages: externals first, in order of
// declaration, then the others in order of creation. Build one with GraphBuilder or parse_graph.
struct Graph {
  std::vector<Storage> storages;
  std::vector<Op> ops;
  std::vector<StorageId> outputs;
  size_t external_count = 0;

  const Op& op(OpId id) const { return ops[index(id)]; }
  const Storage& storage(StorageId id) const { return storages[index(id)]; }
  int64_t external_bytes() const;
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

// An op with storages by name, as GraphBuilder takes it. Every field has a default, so that
// designated initialisers may name just those that matter.
struct OpSpec {
  struct Creation {
    std::string storage = {};
    int64_t bytes = 0;
  };
  struct ReusePair {
    std::string result = {};
    std::string source = {};
  };
  std::string name = {};
  Phase phase = Phase::forward;
  std::string kind = {};
  int64_t time_ns = 0;
  int64_t workspace_bytes = 0;
  std::vector<std::string> reads = {};
  std::vector<std::string> updates = {};
  std::vector<Creation> creates = {};
  std::vector<std::string> effects = {};
  std::vector<ReusePair> reuse = {};
  bool random = false;
  bool once = false;
  std::string scope = {};
};

// Builds a Graph op by op and checks every rule of the format: names that are known and fresh,
// sizes and times that are not negative and whose sums do not overflow. Throws Error (without a
// verb: the caller knows where it is) and is then as it was before the call.
class GraphBuilder {
 public:
  void external(std::string storage, int64_t bytes, Role role);
  void op(OpSpec spec);
  void output(std::string_view storage);
  // Ends the building: numbers the storages, gives roles to those that have none.
  Graph build() &&;

 private:
  struct NameHash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
  };
  template <typename Id>
  using Names = std::unordered_map<std::string, Id, NameHash, std::equal_to<>>;

  StorageId find(std::string_view storage, const char* where) const;
  Value current(StorageId id) const;
  void check(const OpSpec& spec) const;
  void add_storage(std::string storage, int64_t bytes, Role role, std::optional<OpId> creator);

  Graph graph_;
  Names<StorageId> storage_named_;
  Names<OpId> op_named_;
  int64_t total_bytes_ = 0;
  int64_t total_time_ns_ = 0;
};

}  // namespace remat
