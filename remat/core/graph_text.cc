// SPDX-License-Identifier: Apache-2.0
#include "remat/core/graph_text.h"

#include <map>
#include <optional>
#include <utility>

#include "remat/core/error.h"
#include "remat/core/graph_builder.h"
#include "remat/core/text_lines.h"

namespace remat {
namespace {

using detail::concat;
using detail::excerpt;

constexpr std::string_view kHeader = "remat-graph 1";

std::vector<std::string> names_of(std::string_view text, std::string_view key) {
  std::vector<std::string> names;
  for (const std::string_view name : detail::list_of(text, key)) names.emplace_back(name);
  return names;
}

void parse_creates(OpSpec& op, std::string_view text) {
  for (const std::string_view item : detail::list_of(text, "creates")) {
    const auto [storage, bytes] = detail::split_at(item, ':', "<storage>:<bytes> in creates=");
    op.creates.push_back({std::string(storage), detail::number_of(bytes, "size")});
  }
}

void parse_reuse(OpSpec& op, std::string_view text) {
  for (const std::string_view item : detail::list_of(text, "reuse")) {
    const auto [result, source] = detail::split_at(item, '<', "<result>'<'<source> in reuse=");
    op.reuse.push_back({std::string(result), std::string(source)});
  }
}

// Everything an op line may carry after its name and phase. Its position is also its place in the
// printed line, so that "given twice" and "missing" can be told by one bit each.
enum Key { kKind, kTime, kWorkspace, kReads, kUpdates, kCreates, kEffects, kReuse, kScope, kKeys };
constexpr std::string_view kKeyNames[kKeys] = {"kind",    "time_ns", "workspace", "reads", "updates",
                                               "creates", "effects", "reuse",     "scope"};

void parse_key(OpSpec& op, Key key, std::string_view text) {
  switch (key) {
    case kKind: op.kind = text; break;
    case kTime: op.time_ns = detail::number_of(text, "time_ns"); break;
    case kWorkspace: op.workspace_bytes = detail::number_of(text, "workspace"); break;
    case kReads: op.reads = names_of(text, "reads"); break;
    case kUpdates: op.updates = names_of(text, "updates"); break;
    case kCreates: parse_creates(op, text); break;
    case kEffects: op.effects = names_of(text, "effects"); break;
    case kReuse: parse_reuse(op, text); break;
    case kScope: op.scope = text; break;
    case kKeys: break;
  }
}

Key key_named(std::string_view word) {
  for (int key = 0; key < kKeys; ++key) {
    if (word == kKeyNames[key]) return static_cast<Key>(key);
  }
  throw Error(concat("unknown key ", excerpt(word),
                     "; expected one of kind, time_ns, workspace, reads, updates, creates, "
                     "effects, reuse, scope, or the flags random and once"));
}

void set_flag(bool& flag, std::string_view word) {
  if (flag) throw Error(concat("flag ", excerpt(word), " is given twice; expected it once"));
  flag = true;
}

OpSpec parse_op(const std::vector<std::string_view>& words) {
  if (words.size() < 3) {
    throw Error("op line ends early; expected op <name> <phase> kind=<kind> time_ns=<int> ...");
  }
  OpSpec op;
  op.name = words[1];
  const std::optional<Phase> phase = phase_named(words[2]);
  if (!phase) {
    throw Error(concat("unknown phase ", excerpt(words[2]),
                       "; expected forward, backward or optimizer"));
  }
  op.phase = *phase;
  unsigned seen = 0;
  for (size_t i = 3; i < words.size(); ++i) {
    const std::string_view word = words[i];
    const size_t equals = word.find('=');
    if (word == "random") {
      set_flag(op.random, word);
    } else if (word == "once") {
      set_flag(op.once, word);
    } else {
      const Key key = key_named(word.substr(0, equals));
      if (equals == std::string_view::npos || equals + 1 == word.size()) {
        throw Error(concat("key ", excerpt(word), " has no value; expected ", kKeyNames[key],
                           "=<value>, or leave it out"));
      }
      if (seen & (1u << key)) {
        throw Error(concat("key '", kKeyNames[key], "' is given twice; expected it once"));
      }
      seen |= 1u << key;
      parse_key(op, key, word.substr(equals + 1));
    }
  }
  for (const Key key : {kKind, kTime}) {
    if (!(seen & (1u << key))) {
      throw Error(concat("op ", excerpt(op.name), " has no ", kKeyNames[key], "=; expected one"));
    }
  }
  return op;
}

void parse_external(GraphBuilder& builder, const std::vector<std::string_view>& words) {
  if (words.size() != 4) {
    throw Error("expected external <storage> <bytes> <role>, four words");
  }
  const std::optional<Role> role = role_named(words[3]);
  if (!role) {
    throw Error(concat("unknown role ", excerpt(words[3]),
                       "; expected param, buffer, input, activation, gradient, optimizer_state or "
                       "temporary"));
  }
  builder.external(std::string(words[1]), detail::number_of(words[2], "size"), *role);
}

// The words from the first-th on as key=value, each key once.
class Keys {
 public:
  Keys(const std::vector<std::string_view>& words, size_t first, std::string_view known)
      : known_(known) {
    for (size_t i = first; i < words.size(); ++i) {
      const auto [key, text] = detail::split_at(words[i], '=', "<key>=<value>");
      if (text.empty()) throw Error(concat("key ", excerpt(key), " has no value; expected one"));
      if (!values_.emplace(key, text).second) {
        throw Error(concat("key ", excerpt(key), " is given twice; expected it once"));
      }
    }
  }
  // What is left when all were taken is an error.
  std::optional<std::string_view> take(std::string_view key) {
    const auto found = values_.find(key);
    if (found == values_.end()) return std::nullopt;
    const std::string_view text = found->second;
    values_.erase(found);
    return text;
  }
  std::string_view demand(std::string_view key) {
    const std::optional<std::string_view> text = take(key);
    if (!text) throw Error(concat("no ", key, "=; expected ", known_));
    return *text;
  }
  void finish() const {
    if (values_.empty()) return;
    throw Error(concat("unknown key ", excerpt(values_.begin()->first), "; expected ", known_));
  }

 private:
  std::string_view known_;
  std::map<std::string_view, std::string_view> values_;
};

void parse_packed(GraphBuilder& builder, const std::vector<std::string_view>& words) {
  constexpr std::string_view kForm =
      "packed <storage> rule=<name> bytes=<int> pack_ns=<int> [unpack_ns=<int>] [readers=<ops>]";
  if (words.size() < 2) throw Error(concat("packed line ends early; expected ", kForm));
  Keys keys(words, 2, kForm);
  PackedSpec spec;
  spec.storage = words[1];
  spec.rule = keys.demand("rule");
  spec.bytes = detail::number_of(keys.demand("bytes"), "bytes");
  spec.pack_ns = detail::number_of(keys.demand("pack_ns"), "pack_ns");
  if (const auto text = keys.take("unpack_ns")) {
    spec.unpack_ns = detail::number_of(*text, "unpack_ns");
  }
  if (const auto text = keys.take("readers")) spec.readers = names_of(*text, "readers");
  keys.finish();
  builder.packed(std::move(spec));
}

void parse_channel(GraphBuilder& builder, const std::vector<std::string_view>& words) {
  Keys keys(words, 1,
            "channel write_bytes_per_s=<int> read_bytes_per_s=<int> latency_ns=<int> [alignment=<int>]");
  ChannelModel channel;
  const auto number = [&](std::string_view key) { return detail::number_of(keys.demand(key), key); };
  channel.write_bytes_per_s = number("write_bytes_per_s");
  channel.read_bytes_per_s = number("read_bytes_per_s");
  channel.latency_ns = number("latency_ns");
  if (const auto text = keys.take("alignment")) {
    channel.alignment = detail::number_of(*text, "alignment");
  }
  keys.finish();
  builder.channel(channel);
}

template <typename Items, typename Print>
void append_list(std::string& out, std::string_view key, const Items& items, const Print& print) {
  if (items.empty()) return;
  out += " ";
  out += key;
  char separator = '=';
  for (const auto& item : items) {
    out += separator;
    print(item);
    separator = ',';
  }
}

void append_op(std::string& out, const Graph& graph, const Op& op) {
  const auto storage = [&](StorageId id) { out += graph.storage(id).name; };
  const auto value = [&](const Value& v) { storage(v.storage); };
  out += "op " + op.name + " ";
  out += name(op.phase);
  out += " kind=" + op.kind + " time_ns=" + std::to_string(op.time_ns);
  if (op.workspace_bytes > 0) out += " workspace=" + std::to_string(op.workspace_bytes);
  append_list(out, "reads", op.reads, value);
  append_list(out, "updates", op.updates, value);
  append_list(out, "creates", op.creates, [&](StorageId id) {
    storage(id);
    out += ":" + std::to_string(graph.storage(id).bytes);
  });
  append_list(out, "effects", op.effects, value);
  append_list(out, "reuse", op.reuse, [&](const Reuse& reuse) {
    storage(reuse.result);
    out += "<";
    storage(reuse.source);
  });
  if (op.random) out += " random";
  if (op.once) out += " once";
  if (!op.scope.empty()) out += " scope=" + op.scope;
  out += "\n";
}

void append_packed(std::string& out, const Graph& graph, const PackedForm& packed) {
  out += "packed " + graph.storage(packed.storage).name + " rule=" + packed.rule +
         " bytes=" + std::to_string(packed.bytes) + " pack_ns=" + std::to_string(packed.pack_ns);
  if (packed.unpack_ns) out += " unpack_ns=" + std::to_string(*packed.unpack_ns);
  append_list(out, "readers", packed.readers, [&](OpId op) { out += graph.op(op).name; });
  out += "\n";
}

void append_channel(std::string& out, const ChannelModel& channel) {
  out += "channel write_bytes_per_s=" + std::to_string(channel.write_bytes_per_s) +
         " read_bytes_per_s=" + std::to_string(channel.read_bytes_per_s) +
         " latency_ns=" + std::to_string(channel.latency_ns);
  if (channel.alignment != 1) out += " alignment=" + std::to_string(channel.alignment);
  out += "\n";
}

}  // namespace

Graph parse_graph(std::string_view text) {
  GraphBuilder builder;
  detail::for_each_line(
      text, "parse_graph", kHeader, [&](const std::vector<std::string_view>& words) {
        if (words[0] == "op") {
          builder.op(parse_op(words));
        } else if (words[0] == "external") {
          parse_external(builder, words);
        } else if (words[0] == "output") {
          if (words.size() != 2) throw Error("expected output <storage>, two words");
          builder.output(words[1]);
        } else if (words[0] == "packed") {
          parse_packed(builder, words);
        } else if (words[0] == "channel") {
          parse_channel(builder, words);
        } else {
          throw Error(concat("found ", excerpt(words[0]),
                             "; expected a line that starts with external, op, output, packed, "
                             "channel or #"));
        }
      });
  return std::move(builder).build();
}

std::string print_graph(const Graph& graph) {
  std::string out(kHeader);
  out += "\n";
  for (size_t i = 0; i < graph.external_count; ++i) {
    const Storage& storage = graph.storages[i];
    out += "external " + storage.name + " " + std::to_string(storage.bytes) + " ";
    out += name(storage.role);
    out += "\n";
  }
  for (const Op& op : graph.ops) append_op(out, graph, op);
  for (const StorageId id : graph.outputs) out += "output " + graph.storage(id).name + "\n";
  for (const PackedForm& packed : graph.packed_forms) append_packed(out, graph, packed);
  if (graph.channel) append_channel(out, *graph.channel);
  return out;
}

}  // namespace remat
