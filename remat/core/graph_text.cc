// SPDX-License-Identifier: Apache-2.0
#include "remat/core/graph_text.h"

#include <utility>

#include "remat/core/error.h"
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
        } else {
          throw Error(concat("found ", excerpt(words[0]),
                             "; expected a line that starts with external, op, output or #"));
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
  return out;
}

}  // namespace remat
