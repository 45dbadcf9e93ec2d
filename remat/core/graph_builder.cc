// SPDX-License-Identifier: Apache-2.0
#include "remat/core/graph_builder.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "remat/core/error.h"
#include "remat/core/moves.h"
#include "remat/core/text_lines.h"

namespace remat {
namespace {

using detail::concat;
using detail::excerpt;

// Characters that separate things in the text forms, or mark copies and forms of a storage, may not be
// part of a storage's name.
constexpr std::string_view kReservedInStorageNames = ",:<=#~^";
constexpr int32_t kNeverRead = -1;

void check_name(std::string_view name, const char* what, std::string_view reserved) {
  if (name.empty()) throw Error(concat("empty ", what, "; expected a name"));
  for (const char c : name) {
    if (c <= ' ' || c >= 0x7f || reserved.find(c) != std::string_view::npos) {
      throw Error(concat(what, " ", excerpt(name), " holds a character that is not allowed; expected ",
                         "printable ASCII without spaces",
                         reserved.empty() ? std::string()
                                          : concat(" and without any of ", reserved)));
    }
  }
}

void check_amount(int64_t amount, const char* what) {
  if (amount < 0) throw Error(concat(what, " is ", amount, "; expected zero or more"));
  if (amount > kLargestSum) {
    throw Error(concat(what, " is ", amount, "; expected at most ", kLargestSum));
  }
}

int64_t checked_sum(int64_t sum, int64_t amount, const char* what) {
  if (amount > kLargestSum - sum) {
    throw Error(concat("the sum of all ", what, " exceeds ", kLargestSum, "; expected less"));
  }
  return sum + amount;
}

void refuse_repeats(const std::vector<std::string>& names, const char* key) {
  std::unordered_set<std::string_view> seen;
  for (const std::string& name : names) {
    if (!seen.insert(name).second) {
      throw Error(concat(key, " names ", excerpt(name), " twice; expected once"));
    }
  }
}

Phase latest_use(const Graph& graph, const std::vector<Phase>& read_until, StorageId id) {
  Phase latest = read_until[index(id)];
  for (const OpId changer : graph.storage(id).changers) {
    latest = std::max(latest, graph.op(changer).phase);
  }
  return latest;
}

Role role_by_use(Phase made, Phase needed_until, bool output) {
  if (made == Phase::forward && (needed_until != Phase::forward || output)) return Role::activation;
  if (made == Phase::backward && (needed_until == Phase::optimizer || output)) {
    return Role::gradient;
  }
  return Role::temporary;
}

void give_roles(Graph& graph) {
  std::vector<Phase> read_until(graph.storages.size(), Phase::forward);
  for (const Op& op : graph.ops) {
    for (const Value& value : op.reads) {
      Phase& until = read_until[index(value.storage)];
      until = std::max(until, op.phase);
    }
  }
  for (size_t i = graph.external_count; i < graph.storages.size(); ++i) {
    Storage& storage = graph.storages[i];
    storage.role = role_by_use(graph.op(*storage.creator).phase,
                               latest_use(graph, read_until, static_cast<StorageId>(i)),
                               storage.output);
  }
}

// Externals may be declared between ops; ids must not depend on that.
void number_externals_first(Graph& graph) {
  std::vector<StorageId> renumbered(graph.storages.size());
  std::vector<Storage> ordered;
  ordered.reserve(graph.storages.size());
  for (const bool externals : {true, false}) {
    for (size_t i = 0; i < graph.storages.size(); ++i) {
      if (graph.storages[i].external() != externals) continue;
      renumbered[i] = static_cast<StorageId>(ordered.size());
      ordered.push_back(std::move(graph.storages[i]));
    }
  }
  graph.storages = std::move(ordered);
  const auto renumber = [&](StorageId& id) { id = renumbered[index(id)]; };
  for (Op& op : graph.ops) {
    for (Value& value : op.reads) renumber(value.storage);
    for (Value& value : op.updates) renumber(value.storage);
    for (Value& value : op.effects) renumber(value.storage);
    for (StorageId& id : op.creates) renumber(id);
    for (Reuse& reuse : op.reuse) {
      renumber(reuse.result);
      renumber(reuse.source);
    }
  }
  for (StorageId& id : graph.outputs) renumber(id);
  for (PackedForm& packed : graph.packed_forms) renumber(packed.storage);
}

}  // namespace

OpSpec OpSpec::like(const Op& op) {
  return {.name = op.name,
          .phase = op.phase,
          .kind = op.kind,
          .time_ns = op.time_ns,
          .workspace_bytes = op.workspace_bytes,
          .random = op.random,
          .once = op.once,
          .scope = op.scope};
}

StorageId GraphBuilder::find(std::string_view storage, const char* where) const {
  const auto found = storage_named_.find(storage);
  if (found == storage_named_.end()) {
    throw Error(concat(where, " names storage ", excerpt(storage),
                       ", which no earlier line declares or creates; expected a known storage"));
  }
  return found->second;
}

Value GraphBuilder::current(StorageId id) const { return {id, graph_.last_version(id)}; }

void GraphBuilder::add_storage(std::string storage, int64_t bytes, Role role,
                               std::optional<OpId> creator) {
  storage_named_.emplace(storage, static_cast<StorageId>(graph_.storages.size()));
  graph_.storages.push_back(Storage{.name = std::move(storage),
                                    .bytes = bytes,
                                    .role = role,
                                    .creator = creator,
                                    .changers = {},
                                    .output = false});
  last_read_.push_back(kNeverRead);
  packed_.push_back(false);
}

void GraphBuilder::external(std::string storage, int64_t bytes, Role role) {
  check_name(storage, "storage", kReservedInStorageNames);
  check_amount(bytes, "size");
  if (storage_named_.contains(storage)) {
    throw Error(concat("storage ", excerpt(storage), " is declared twice; expected a fresh name"));
  }
  total_bytes_ = checked_sum(total_bytes_, bytes, "bytes");
  add_storage(std::move(storage), bytes, role, std::nullopt);
  ++graph_.external_count;
}

void GraphBuilder::check(const OpSpec& spec) const {
  check_name(spec.name, "op", "");
  check_name(spec.kind, "kind", "");
  if (!spec.scope.empty()) check_name(spec.scope, "scope", "");
  if (op_named_.contains(spec.name)) {
    throw Error(concat("op ", excerpt(spec.name), " is given twice; expected a fresh name"));
  }
  check_amount(spec.time_ns, "time_ns");
  check_amount(spec.workspace_bytes, "workspace");
  for (const std::string& storage : spec.reads) find(storage, "reads");
  refuse_repeats(spec.updates, "updates");
  const std::unordered_set<std::string_view> updated(spec.updates.begin(), spec.updates.end());
  for (const std::string& storage : spec.updates) find(storage, "updates");
  refuse_repeats(spec.effects, "effects");
  for (const std::string& storage : spec.effects) {
    if (!graph_.storage(find(storage, "effects")).external()) {
      throw Error(concat("effects names ", excerpt(storage),
                         ", which this step creates; expected an external storage"));
    }
    if (updated.contains(storage)) {
      throw Error(concat(excerpt(storage), " is in both updates and effects; expected one of them"));
    }
  }
  std::vector<std::string> created;
  for (const OpSpec::Creation& creation : spec.creates) {
    check_name(creation.storage, "storage", kReservedInStorageNames);
    check_amount(creation.bytes, "size");
    if (storage_named_.contains(creation.storage)) {
      throw Error(concat("creates names storage ", excerpt(creation.storage),
                         ", which exists already; expected a fresh name"));
    }
    created.push_back(creation.storage);
  }
  refuse_repeats(created, "creates");
  const std::unordered_set<std::string_view> results(created.begin(), created.end());
  const std::unordered_set<std::string_view> read(spec.reads.begin(), spec.reads.end());
  for (const OpSpec::ReusePair& reuse : spec.reuse) {
    if (!results.contains(reuse.result)) {
      throw Error(concat("reuse writes ", excerpt(reuse.result),
                         ", which this op does not create; expected one of its creates"));
    }
    if (!read.contains(reuse.source) || updated.contains(reuse.source)) {
      throw Error(concat("reuse takes the place of ", excerpt(reuse.source),
                         "; expected a storage that this op reads and does not update"));
    }
  }
}

void GraphBuilder::op(OpSpec spec) {
  if (!graph_.packed_forms.empty()) {
    throw Error(concat("op ", excerpt(spec.name), " comes after a packed form; expected ops first"));
  }
  check(spec);
  int64_t bytes = checked_sum(total_bytes_, spec.workspace_bytes, "bytes");
  for (const OpSpec::Creation& creation : spec.creates) {
    bytes = checked_sum(bytes, creation.bytes, "bytes");
  }
  total_time_ns_ = checked_sum(total_time_ns_, spec.time_ns, "times");
  total_bytes_ = bytes;

  const OpId id = static_cast<OpId>(graph_.ops.size());
  Op op{.name = std::move(spec.name),
        .phase = spec.phase,
        .kind = std::move(spec.kind),
        .scope = std::move(spec.scope),
        .time_ns = spec.time_ns,
        .workspace_bytes = spec.workspace_bytes,
        .reads = {},
        .updates = {},
        .creates = {},
        .effects = {},
        .reuse = {},
        .random = spec.random,
        .once = spec.once};
  for (const std::string& storage : spec.reads) op.reads.push_back(current(find(storage, "reads")));
  for (const std::string& storage : spec.updates) {
    op.updates.push_back(current(find(storage, "updates")));
  }
  for (const std::string& storage : spec.effects) {
    op.effects.push_back(current(find(storage, "effects")));
  }
  for (const Value& value : op.reads) last_read_[index(value.storage)] = value.version;
  for (const Value& value : op.updates) graph_.storages[index(value.storage)].changers.push_back(id);
  for (const Value& value : op.effects) graph_.storages[index(value.storage)].changers.push_back(id);
  for (OpSpec::Creation& creation : spec.creates) {
    op.creates.push_back(static_cast<StorageId>(graph_.storages.size()));
    add_storage(std::move(creation.storage), creation.bytes, Role::temporary, id);
  }
  for (const OpSpec::ReusePair& reuse : spec.reuse) {
    op.reuse.push_back({find(reuse.result, "reuse"), find(reuse.source, "reuse")});
  }
  op_named_.emplace(op.name, id);
  graph_.ops.push_back(std::move(op));
}

void GraphBuilder::output(std::string_view storage) {
  const StorageId id = find(storage, "output");
  if (graph_.storage(id).output) {
    throw Error(concat("storage ", excerpt(storage), " is an output already; expected it once"));
  }
  graph_.storages[index(id)].output = true;
  graph_.outputs.push_back(id);
}

void GraphBuilder::check(const PackedSpec& spec) const {
  const StorageId id = find(spec.storage, "packed");
  const Storage& storage = graph_.storage(id);
  check_name(spec.rule, "rule", "");
  check_amount(spec.bytes, "size");
  check_amount(spec.pack_ns, "pack_ns");
  check_amount(spec.unpack_ns.value_or(0), "unpack_ns");
  if (storage.external()) {
    throw Error(concat("packed names ", excerpt(spec.storage),
                       ", an external; expected a storage that the step creates"));
  }
  if (last_read_[index(id)] != graph_.last_version(id)) {
    throw Error(concat("packed names ", excerpt(spec.storage),
                       ", which no op reads at its last version; expected one that is needed later"));
  }
  if (packed_[index(id)]) {
    throw Error(concat(excerpt(spec.storage), " has a packed form already; expected one"));
  }
  if (spec.bytes >= storage.bytes) {
    throw Error(concat("packed ", excerpt(spec.storage), " takes ", spec.bytes,
                       " bytes; expected less than its ", storage.bytes));
  }
  if (!spec.unpack_ns && spec.readers.empty()) {
    throw Error(concat("packed ", excerpt(spec.storage),
                       " has no unpack_ns= and no readers=; expected one of them"));
  }
  refuse_repeats(spec.readers, "readers");
  for (const std::string& reader : spec.readers) check_reader(spec, reader);
}

// A reader must be an op that does nothing but compute results from what it reads.
void GraphBuilder::check_reader(const PackedSpec& spec, const std::string& reader) const {
  const auto found = op_named_.find(reader);
  if (found == op_named_.end()) {
    throw Error(concat("readers names op ", excerpt(reader), "; expected an op of the graph"));
  }
  const Op& op = graph_.op(found->second);
  const StorageId id = find(spec.storage, "packed");
  const Value value{id, last_read_[index(id)]};
  if (std::count(op.reads.begin(), op.reads.end(), value) != 1) {
    throw Error(concat("readers names op ", excerpt(reader), ", which does not read ",
                       excerpt(spec.storage), " at version ", value.version, "; expected that it does, once"));
  }
  if (op.random || op.once || !op.updates.empty() || !op.effects.empty()) {
    throw Error(concat("readers names op ", excerpt(reader),
                       ", which is random or changes something; expected one that only creates"));
  }
}

void GraphBuilder::packed(PackedSpec spec) {
  check(spec);
  int64_t time_ns = checked_sum(total_time_ns_, spec.pack_ns, "times");
  time_ns = checked_sum(time_ns, spec.unpack_ns.value_or(0), "times");
  total_bytes_ = checked_sum(total_bytes_, spec.bytes, "bytes");
  total_time_ns_ = time_ns;
  PackedForm packed{.storage = find(spec.storage, "packed"),
                    .rule = std::move(spec.rule),
                    .bytes = spec.bytes,
                    .pack_ns = spec.pack_ns,
                    .unpack_ns = spec.unpack_ns,
                    .readers = {}};
  for (const std::string& reader : spec.readers) {
    packed.readers.push_back(op_named_.find(reader)->second);
  }
  packed_[index(packed.storage)] = true;
  graph_.packed_forms.push_back(std::move(packed));
}

void GraphBuilder::channel(const ChannelModel& channel) {
  if (graph_.channel) throw Error("a second channel; expected one");
  check_amount(channel.latency_ns, "latency_ns");
  for (const int64_t rate : {channel.write_bytes_per_s, channel.read_bytes_per_s}) {
    check_amount(rate, "bytes per second");
    if (rate == 0) throw Error("a channel carries 0 bytes per second; expected one or more");
  }
  const int64_t alignment = channel.alignment;
  constexpr int64_t kLargestAlignment = int64_t{1} << 20;
  if (alignment < 1 || alignment > kLargestAlignment || (alignment & (alignment - 1)) != 0) {
    throw Error(concat("alignment is ", alignment, "; expected a power of two up to ",
                       kLargestAlignment));
  }
  graph_.channel = channel;
}

Graph GraphBuilder::build() && {
  number_externals_first(graph_);
  give_roles(graph_);
  add_moves(graph_);
  return std::move(graph_);
}

}  // namespace remat
