// SPDX-License-Identifier: Apache-2.0
#include "remat/core/analysis/interpolate.h"

#include <algorithm>
#include <vector>

#include "remat/core/error.h"
#include "remat/core/moves.h"

namespace remat {
namespace {

using detail::concat;

// Amounts have 53 bits (kLargestSum) and sizes 22, so that products of an amount and three differences
// of sizes are exact.
__extension__ typedef __int128 Wide;

enum class Rounding : uint8_t { up, nearest };

// The polynomial through as many points as there are nodes, evaluated at one place.
class Polynomial {
 public:
  Polynomial(std::vector<int64_t> nodes, int64_t place) : nodes_(std::move(nodes)) {
    const auto x = [this](size_t i) { return Wide{nodes_[i]}; };
    // Lagrange's weights, brought to the common denominator.
    if (nodes_.size() == 2) {
      weights_ = {x(1) - place, place - x(0)};
      denominator_ = x(1) - x(0);
    } else {
      weights_ = {(place - x(1)) * (place - x(2)) * (x(2) - x(1)),
                  (place - x(0)) * (place - x(2)) * (x(0) - x(2)),
                  (place - x(0)) * (place - x(1)) * (x(1) - x(0))};
      denominator_ = (x(1) - x(0)) * (x(2) - x(0)) * (x(2) - x(1));
    }
  }

  // `amount` gives the number at the i-th node.
  template <typename Amount>
  int64_t at(const Amount& amount, Rounding rounding, const char* what) const {
    Wide sum = 0;
    for (size_t i = 0; i < nodes_.size(); ++i) sum += weights_[i] * amount(i);
    if (sum <= 0) return 0;
    const Wide more = rounding == Rounding::up ? denominator_ - 1 : denominator_ / 2;
    const Wide value = (sum + more) / denominator_;
    if (value > kLargestSum) {
      throw Error(concat("[interpolate] ", what, " would exceed ", kLargestSum,
                         "; expected a smaller size"));
    }
    return static_cast<int64_t>(value);
  }

 private:
  std::vector<int64_t> nodes_;  // rising, so that the denominator is positive
  std::vector<Wide> weights_;
  Wide denominator_ = 1;
};

std::string op_label(const Op& op) {
  return concat(op.name, op.kind.empty() ? "" : concat(" (", op.kind, ")"));
}

std::optional<std::string> op_difference(size_t number, const Op& a, const Op& b) {
  if (a.name != b.name || a.kind != b.kind) {
    return concat("op ", number, " is ", op_label(a), " in one and ", op_label(b), " in the other");
  }
  const auto differs = [&](const char* what) {
    return concat("op ", number, ", ", op_label(a), ", has other ", what);
  };
  if (a.phase != b.phase) return differs("phases");
  if (a.scope != b.scope) return differs("layers");
  if (a.reads != b.reads) return differs("inputs");
  if (a.updates != b.updates) return differs("updates");
  if (a.creates != b.creates) return differs("results");
  if (a.effects != b.effects) return differs("effects");
  if (a.reuse != b.reuse) return differs("results that may take the place of an input");
  if (a.random != b.random || a.once != b.once) return differs("marks (random, once)");
  return std::nullopt;
}

std::optional<std::string> storage_difference(const Storage& a, const Storage& b) {
  if (a.name != b.name) {
    return concat("a storage is ", a.name, " in one and ", b.name, " in the other");
  }
  if (a.role != b.role) {
    return concat(a.name, " is ", name(a.role), " in one and ", name(b.role), " in the other");
  }
  if (a.creator != b.creator || a.changers != b.changers || a.output != b.output) {
    return concat(a.name, " is made, changed or kept by other ops");
  }
  return std::nullopt;
}

void check(std::span<const SizedGraph> known, Growth growth) {
  if (known.size() < sizes_needed(growth)) {
    throw Error(concat("[interpolate] ", known.size(), " sizes are known; expected at least ",
                       sizes_needed(growth)));
  }
  for (size_t i = 0; i < known.size(); ++i) {
    if (known[i].size < 1 || known[i].size > kLargestProgramSize) {
      throw Error(concat("[interpolate] a graph of size ", known[i].size, "; expected 1 to ",
                         kLargestProgramSize));
    }
    for (size_t j = 0; j < i; ++j) {
      if (known[i].size == known[j].size) {
        throw Error(concat("[interpolate] size ", known[i].size, " is given twice; expected once"));
      }
    }
    if (const auto difference = program_difference(known[0].graph, known[i].graph)) {
      throw Error(concat("[interpolate] the graphs of sizes ", known[0].size, " and ",
                         known[i].size, " are not of one program: ", *difference,
                         "; expected graphs that differ in bytes and times only"));
    }
  }
}

const PackedForm* same_form(const Graph& graph, const PackedForm& form) {
  const auto found = std::ranges::find_if(graph.packed_forms, [&](const PackedForm& other) {
    return other.storage == form.storage && other.rule == form.rule && other.readers == form.readers &&
           other.unpack_ns.has_value() == form.unpack_ns.has_value();
  });
  return found == graph.packed_forms.end() ? nullptr : &*found;
}

// Those that every node has. A value can be worth packing in one size only.
std::vector<PackedForm> interpolate_forms(std::span<const SizedGraph* const> nodes, const Polynomial& polynomial) {
  std::vector<PackedForm> forms;
  for (PackedForm form : nodes.front()->graph.packed_forms) {
    std::vector<const PackedForm*> each;
    for (const SizedGraph* node : nodes) each.push_back(same_form(node->graph, form));
    if (std::ranges::find(each, nullptr) != each.end()) continue;
    form.bytes = polynomial.at([&](size_t i) { return each[i]->bytes; }, Rounding::up, "a packed value");
    form.pack_ns = polynomial.at([&](size_t i) { return each[i]->pack_ns; }, Rounding::nearest, "a time");
    if (form.unpack_ns) {
      form.unpack_ns = polynomial.at([&](size_t i) { return *each[i]->unpack_ns; }, Rounding::nearest, "a time");
    }
    forms.push_back(std::move(form));
  }
  return forms;
}

// Those that are nearest, in order of size.
std::vector<const SizedGraph*> nearest(std::span<const SizedGraph> known, int64_t size,
                                       size_t count) {
  std::vector<const SizedGraph*> chosen;
  for (const SizedGraph& each : known) chosen.push_back(&each);
  const auto distance = [size](const SizedGraph* each) {
    return std::pair(std::abs(each->size - size), each->size);
  };
  std::ranges::sort(chosen, {}, distance);
  chosen.resize(count);
  std::ranges::sort(chosen, {}, [](const SizedGraph* each) { return each->size; });
  return chosen;
}

}  // namespace

std::optional<std::string> program_difference(const Graph& a, const Graph& b) {
  for (size_t i = 0; i < std::min(a.ops.size(), b.ops.size()); ++i) {
    if (auto difference = op_difference(i, a.ops[i], b.ops[i])) return difference;
  }
  if (a.ops.size() != b.ops.size()) {
    return concat("one has ", a.ops.size(), " ops and the other ", b.ops.size());
  }
  if (a.storages.size() != b.storages.size() || a.external_count != b.external_count) {
    return concat("one has ", a.storages.size(), " storages and the other ", b.storages.size(),
                  ", of which externals ", a.external_count, " and ", b.external_count);
  }
  for (size_t i = 0; i < a.storages.size(); ++i) {
    if (auto difference = storage_difference(a.storages[i], b.storages[i])) return difference;
  }
  if (a.outputs != b.outputs) return "they have other outputs";
  return std::nullopt;
}

Graph interpolate(std::span<const SizedGraph> known, int64_t size, Growth growth) {
  check(known, growth);
  if (size < 1 || size > kLargestProgramSize) {
    throw Error(concat("[interpolate] size ", size, "; expected 1 to ", kLargestProgramSize));
  }
  const auto same = std::ranges::find(known, size, &SizedGraph::size);
  if (same != known.end()) return same->graph;

  const std::vector<const SizedGraph*> nodes = nearest(known, size, sizes_needed(growth));
  std::vector<int64_t> sizes;
  for (const SizedGraph* node : nodes) sizes.push_back(node->size);
  const Polynomial polynomial(std::move(sizes), size);

  Graph graph = nodes.front()->graph;
  Wide total_bytes = 0;
  Wide total_ns = 0;
  for (size_t i = 0; i < graph.storages.size(); ++i) {
    const auto bytes = [&](size_t node) { return nodes[node]->graph.storages[i].bytes; };
    graph.storages[i].bytes = polynomial.at(bytes, Rounding::up, "a storage");
    total_bytes += graph.storages[i].bytes;
  }
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    const auto workspace = [&](size_t node) { return nodes[node]->graph.ops[i].workspace_bytes; };
    const auto time = [&](size_t node) { return nodes[node]->graph.ops[i].time_ns; };
    graph.ops[i].workspace_bytes = polynomial.at(workspace, Rounding::up, "a workspace");
    graph.ops[i].time_ns = polynomial.at(time, Rounding::nearest, "a time");
    total_bytes += graph.ops[i].workspace_bytes;
    total_ns += graph.ops[i].time_ns;
  }
  if (total_bytes > kLargestSum || total_ns > kLargestSum) {
    throw Error(concat("[interpolate] at size ", size, " the sum of all ",
                       total_bytes > kLargestSum ? "bytes" : "times", " would exceed ", kLargestSum,
                       "; expected a smaller size"));
  }
  graph.packed_forms = interpolate_forms(nodes, polynomial);
  add_moves(graph);
  return graph;
}

}  // namespace remat
