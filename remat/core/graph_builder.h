// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "remat/core/graph.h"

namespace remat {

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

  // What an op of another graph is, but for the storages that it touches.
  static OpSpec like(const Op& op);
};

// A packed form by name.
struct PackedSpec {
  std::string storage = {};
  std::string rule = {};
  int64_t bytes = 0;
  int64_t pack_ns = 0;
  std::optional<int64_t> unpack_ns = {};
  std::vector<std::string> readers = {};
};

// Builds a Graph op by op and checks every rule of the format: names that are known and fresh,
// sizes and times that are not negative and whose sums do not overflow. Throws Error (without a
// verb: the caller knows where it is) and is then as it was before the call.
class GraphBuilder {
 public:
  void external(std::string storage, int64_t bytes, Role role);
  void op(OpSpec spec);
  void output(std::string_view storage);
  // After the ops that use the storage and those that are named.
  void packed(PackedSpec spec);
  void channel(const ChannelModel& channel);
  // Ends the building: numbers the storages, gives roles to those that have none, adds the moves.
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
  void check(const PackedSpec& spec) const;
  void check_reader(const PackedSpec& spec, const std::string& reader) const;
  void add_storage(std::string storage, int64_t bytes, Role role, std::optional<OpId> creator);

  Graph graph_;
  std::vector<int32_t> last_read_;  // by storage: the last version that an op reads, or -1
  std::vector<bool> packed_;        // by storage: has a packed form
  Names<StorageId> storage_named_;
  Names<OpId> op_named_;
  int64_t total_bytes_ = 0;
  int64_t total_time_ns_ = 0;
};

}  // namespace remat
