// SPDX-License-Identifier: Apache-2.0
#include "remat/report/dot.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "remat/core/error.h"
#include "remat/core/units.h"

namespace remat {
namespace {

// A string of the DOT language. Its only escape is \" itself; Graphviz gives the backslash a meaning in
// labels, so that it is doubled, and rejects what is no UTF-8.
std::string dot_string(const std::string& text) {
  const std::string valid = nlohmann::json::parse(
      nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  std::string out = "\"";
  for (const char c : valid) {
    if (c == '"' || c == '\\') out += '\\';
    out += c == '\n' ? std::string("\\n") : std::string(1, c);
  }
  return out + "\"";
}

std::optional<size_t> op_at(const Graph& graph, std::string_view text) {
  const auto named = std::ranges::find(graph.ops, text, &Op::name);
  if (named != graph.ops.end()) return static_cast<size_t>(named - graph.ops.begin());
  size_t number = 0;
  const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (fault != std::errc() || end != text.data() + text.size() || number >= graph.ops.size()) return {};
  return number;
}

constexpr const char* kPhaseColours[] = {"#cfe2f3", "#fce5cd", "#e2d4ea"};  // by Phase

class DotWriter {
 public:
  DotWriter(const Graph& graph, const OpRange& range, const std::vector<OpId>& order)
      : graph_(graph), range_(range), runs_(graph.ops.size(), order.empty() ? 1 : 0) {
    for (const OpId id : order) {
      const OpId op = graph.original(id);
      if (!graph.is_move(op)) ++runs_[index(op)];
    }
  }

  std::string text() {
    out_ =
        "digraph step {\n  rankdir=TB;\n  node [shape=box, style=\"filled,rounded\", fontname=\"sans-serif\", "
        "fontsize=10];\n  edge [fontname=\"sans-serif\", fontsize=8, color=\"#666666\"];\n";
    add_ops();
    for (size_t i = range_.first; i < range_.end; ++i) add_edges(i);
    for (size_t i = range_.end; i < graph_.ops.size(); ++i) add_uses_outside(graph_.ops[i]);
    return out_ + "}\n";
  }

 private:
  // Layers as boxes around their ops; a layer's backward is a box of its own.
  void add_ops() {
    std::map<std::pair<Phase, std::string>, std::vector<size_t>> layers;
    for (size_t i = range_.first; i < range_.end; ++i) {
      layers[{graph_.ops[i].phase, graph_.ops[i].scope}].push_back(i);
    }
    int number = 0;
    for (const auto& [layer, ops] : layers) {
      const bool boxed = !layer.second.empty();
      if (boxed) {
        out_ += fmt::format("  subgraph cluster_{} {{\n  label={}; color=\"#999999\"; fontname=\"sans-serif\"; "
                            "fontsize=10;\n",
                            number++, dot_string(layer.second + ", " + std::string(name(layer.first))));
      }
      for (const size_t i : ops) add_op(i);
      if (boxed) out_ += "  }\n";
    }
  }

  void add_op(size_t i) {
    const Op& op = graph_.ops[i];
    std::string label = fmt::format("{}\n{}, {}", op.name, op.kind, format_ns(op.time_ns));
    if (runs_[i] > 1) label += fmt::format("\nruns {} times", runs_[i]);
    out_ += fmt::format("  op{} [label={}, fillcolor=\"{}\"{}];\n", i, dot_string(label),
                        kPhaseColours[static_cast<size_t>(op.phase)],
                        runs_[i] > 1 ? ", peripheries=2, color=\"#b45f06\"" : "");
  }

  // The op that made the value, or none for what the step was given.
  std::optional<size_t> maker(const Value& value) const {
    const Storage& storage = graph_.storage(value.storage);
    if (value.version > 0) return index(storage.changers[static_cast<size_t>(value.version) - 1]);
    if (storage.creator) return index(*storage.creator);
    return {};
  }

  bool inside(size_t op) const { return op >= range_.first && op < range_.end; }

  // A storage that comes from outside, or is needed there.
  std::string outer_node(StorageId id) {
    const Storage& storage = graph_.storage(id);
    const std::string node = fmt::format("storage{}", index(id));
    if (outer_.insert(index(id)).second) {
      out_ += fmt::format("  {} [label={}, shape=ellipse, style=filled, fillcolor=\"#eeeeee\"];\n", node,
                          dot_string(fmt::format("{}\n{}, {}", storage.name, name(storage.role),
                                             format_bytes(storage.bytes))));
    }
    return node;
  }

  void add_edges(size_t i) {
    const Op& op = graph_.ops[i];
    const std::string node = fmt::format("op{}", i);
    const auto uses = [&](const Value& value) {
      const auto from = maker(value);
      const std::string source = from && inside(*from) ? fmt::format("op{}", *from) : outer_node(value.storage);
      const Storage& storage = graph_.storage(value.storage);
      out_ += fmt::format("  {} -> {} [label={}];\n", source, node,
                          dot_string(storage.name + ", " + format_bytes(storage.bytes)));
    };
    for (const Value& value : op.reads) uses(value);
    for (const Value& value : op.updates) uses(value);
    for (const StorageId made : op.creates) {
      if (graph_.storage(made).output) leaves(i, made);
    }
  }

  void add_uses_outside(const Op& op) {
    for (const std::vector<Value>* values : {&op.reads, &op.updates}) {
      for (const Value& value : *values) {
        const auto from = maker(value);
        if (from && inside(*from)) leaves(*from, value.storage);
      }
    }
  }

  void leaves(size_t op, StorageId id) {
    if (!left_.insert({op, index(id)}).second) return;
    const std::string node = outer_node(id);
    out_ += fmt::format("  op{} -> {};\n", op, node);
  }

  const Graph& graph_;
  const OpRange range_;
  std::vector<int64_t> runs_;  // by op
  std::set<size_t> outer_;     // storages that have a node
  std::set<std::pair<size_t, size_t>> left_;  // op and storage
  std::string out_;
};

}  // namespace

OpRange parse_op_range(const Graph& graph, std::string_view text) {
  if (text.empty()) return {0, graph.ops.size()};
  if (const auto single = op_at(graph, text)) return {*single, *single + 1};
  // A name may hold colons itself.
  for (size_t colon = text.find(':'); colon != std::string_view::npos; colon = text.find(':', colon + 1)) {
    const std::string_view from = text.substr(0, colon);
    const std::string_view to = text.substr(colon + 1);
    const auto first = from.empty() ? std::optional<size_t>(0) : op_at(graph, from);
    const auto last = to.empty() ? std::optional(graph.ops.size() - 1) : op_at(graph, to);
    if (first && last && *first <= *last && !graph.ops.empty()) return {*first, *last + 1};
  }
  throw Error(detail::concat("no range '", text, "'; expected a:b, two ops of the graph by name or by number "
                             "from 0 to ", static_cast<int64_t>(graph.ops.size()) - 1, ", the earlier first"));
}

std::string graph_dot(const Graph& graph, const OpRange& range, const std::vector<OpId>& order) {
  return DotWriter(graph, range, order).text();
}

}  // namespace remat
