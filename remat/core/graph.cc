// SPDX-License-Identifier: Apache-2.0
#include "remat/core/graph.h"

#include <algorithm>

namespace remat {
namespace {

constexpr std::array<std::string_view, kRoleCount> kRoleNames = {
    "param", "buffer", "input", "activation", "gradient", "optimizer_state", "temporary"};
constexpr std::array<std::string_view, 3> kPhaseNames = {"forward", "backward", "optimizer"};

template <typename Enum, size_t N>
std::optional<Enum> find_name(const std::array<std::string_view, N>& names, std::string_view name) {
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) return std::nullopt;
  return static_cast<Enum>(found - names.begin());
}

}  // namespace

std::string_view name(Role role) { return kRoleNames[static_cast<size_t>(role)]; }
std::optional<Role> role_named(std::string_view name) { return find_name<Role>(kRoleNames, name); }
std::string_view name(Phase phase) { return kPhaseNames[static_cast<size_t>(phase)]; }
std::optional<Phase> phase_named(std::string_view name) {
  return find_name<Phase>(kPhaseNames, name);
}

int32_t Storage::version_before(OpId op) const {
  return static_cast<int32_t>(std::ranges::lower_bound(changers, op) - changers.begin());
}

int64_t Graph::total_time_ns() const {
  int64_t sum = 0;
  for (const Op& op : ops) sum += op.time_ns;
  return sum;
}

int64_t Graph::external_bytes() const {
  int64_t sum = 0;
  for (size_t i = 0; i < external_count; ++i) sum += storages[i].bytes;
  return sum;
}

// A rate of zero is not a channel's; so that nothing divides by it all the same, it takes for ever.
int64_t ChannelModel::transfer_ns(int64_t bytes, int64_t bytes_per_s) {
  if (bytes_per_s <= 0) return kLargestSum;
  const double ns = static_cast<double>(bytes) * 1e9 / static_cast<double>(bytes_per_s);
  return ns < static_cast<double>(kLargestSum) ? static_cast<int64_t>(ns) : kLargestSum;
}

int32_t Graph::created_version(OpId id) const {
  if (!is_move(id)) return 0;
  const bool brings_back =
      move(id).kind == MoveKind::unpack || move(id).kind == MoveKind::prefetch;
  return brings_back ? move(id).value.version : 0;
}

bool Graph::rerunnable(OpId id) const {
  const Op& candidate = op(id);
  if (candidate.once) return false;
  return std::none_of(candidate.updates.begin(), candidate.updates.end(),
                      [&](const Value& value) { return storage(value.storage).external(); });
}

std::vector<OpId> given_order(const Graph& graph) {
  std::vector<OpId> order(graph.ops.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<OpId>(i);
  return order;
}

std::vector<Value> output_values(const Graph& graph) {
  std::vector<Value> values;
  for (const StorageId id : graph.outputs) {
    if (!graph.storage(id).external()) values.push_back({id, graph.last_version(id)});
  }
  return values;
}

bool is_output(const Graph& graph, const Value& value) {
  return graph.storage(value.storage).output && value.version == graph.last_version(value.storage);
}

std::optional<OpId> next_change(const Graph& graph, const Value& value) {
  const std::vector<OpId>& changers = graph.storage(value.storage).changers;
  const size_t next = static_cast<size_t>(value.version);
  return next < changers.size() ? std::optional(changers[next]) : std::nullopt;
}

}  // namespace remat
