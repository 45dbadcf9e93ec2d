// SPDX-License-Identifier: Apache-2.0
#include "bench/generator/graphs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "bench/generator/layers.h"
#include "remat/core/graph_text.h"
#include "remat/core/rewrite.h"

namespace remat::bench {
namespace graphs_test {

const std::filesystem::path kDirectory = REMAT_GRAPHS_DIR;

const Graph& graph_of(std::string_view name) {
  static std::map<std::string_view, Graph> made;
  const auto found = made.find(name);
  if (found != made.end()) return found->second;
  return made.emplace(name, graph_named(name)->make()).first->second;
}

std::string content_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

int64_t external_bytes(const Graph& graph, Role role) {
  int64_t sum = 0;
  for (const Storage& storage : graph.storages) {
    if (storage.external() && storage.role == role) sum += storage.bytes;
  }
  return sum;
}

template <typename Has>
bool any_op(const Graph& graph, const Has& has) {
  return std::any_of(graph.ops.begin(), graph.ops.end(), has);
}

bool writes_externals(const Graph& graph, const Op& op) {
  return std::any_of(op.updates.begin(), op.updates.end(),
                     [&](const Value& value) { return graph.storage(value.storage).external(); });
}

bool ends_with_optimizer(const Graph& graph) { return graph.ops.back().phase == Phase::optimizer; }

TEST(Graphs, ParseBackEqual) {
  for (const NamedGraph& named : named_graphs()) {
    const Graph& graph = graph_of(named.name);
    EXPECT_TRUE(parse_graph(print_graph(graph)) == graph) << named.name;
  }
}

TEST(Graphs, CommittedFilesAreWhatTheGeneratorWrites) {
  for (const NamedGraph& named : named_graphs()) {
    if (!named.committed) continue;
    const std::string file = content_of(kDirectory / (std::string(named.name) + ".graph"));
    EXPECT_TRUE(file == print_graph(graph_of(named.name)))
        << named.name << ".graph differs; run build/bin/make_graphs";
    EXPECT_LT(file.size(), 700'000u) << named.name << " is too large to commit";
  }
}

TEST(Graphs, ReadmeHoldsTheTable) {
  std::string table = table_head();
  for (const NamedGraph& named : named_graphs()) table += table_row(named, graph_of(named.name));
  EXPECT_NE(content_of(kDirectory / "README.md").find(table), std::string::npos)
      << "expected in bench/graphs/README.md what build/bin/make_graphs --list prints:\n"
      << table;
}

TEST(Graphs, GivenOrderIsLegalWithAndWithoutReuse) {
  for (const NamedGraph& named : named_graphs()) {
    const Graph& graph = graph_of(named.name);
    std::vector<OpId> order;
    for (size_t i = 0; i < graph.ops.size(); ++i) order.push_back(static_cast<OpId>(i));
    for (const bool reuse : {false, true}) {
      EXPECT_NO_THROW(rewrite(graph, order, {.reuse = reuse})) << named.name;
    }
  }
}

// The step starts from externals only, so that all of forward can be had again: every in-place
// chain from its creator, random and effects included.
TEST(Graphs, ForwardMayRunTwice) {
  for (const NamedGraph& named : named_graphs()) {
    const Graph& graph = graph_of(named.name);
    std::vector<OpId> forward;
    std::vector<OpId> again;
    std::vector<OpId> rest;
    for (size_t i = 0; i < graph.ops.size(); ++i) {
      const OpId id = static_cast<OpId>(i);
      const bool is_forward = graph.op(id).phase == Phase::forward;
      (is_forward ? forward : rest).push_back(id);
      if (is_forward && graph.rerunnable(id)) again.push_back(id);
    }
    std::vector<OpId> order = forward;
    order.insert(order.end(), again.begin(), again.end());
    order.insert(order.end(), rest.begin(), rest.end());
    EXPECT_NO_THROW(rewrite(graph, order)) << named.name;
  }
}

// What autograd saves, by the kind of the op that wrote it last before backward.
TEST(Graphs, BackwardReadsWhatAutogradSaves) {
  const std::map<std::string, std::vector<std::string>> saved = {
      {"aten::threshold_backward", {"aten::relu", "aten::relu_"}},
      {"aten::gelu_backward", {"aten::addmm"}},
      {"aten::_softmax_backward_data", {"aten::_softmax"}},
      {"aten::_log_softmax_backward_data", {"aten::_log_softmax"}},
      {"aten::sigmoid_backward", {"aten::sigmoid_"}},
      {"aten::tanh_backward", {"aten::tanh", "aten::sigmoid_"}},  // a gate shares its storage
  };
  for (const NamedGraph& named : named_graphs()) {
    const Graph& graph = graph_of(named.name);
    for (const Op& op : graph.ops) {
      const auto found = saved.find(op.kind);
      if (found == saved.end()) continue;
      const Value value = op.reads.at(1);
      const Storage& storage = graph.storage(value.storage);
      const OpId writer = value.version == 0
                              ? *storage.creator
                              : storage.changers[static_cast<size_t>(value.version) - 1];
      const auto& kinds = found->second;
      EXPECT_NE(std::find(kinds.begin(), kinds.end(), graph.op(writer).kind), kinds.end())
          << named.name << " " << op.name << " reads what " << graph.op(writer).name << " wrote";
    }
  }
}

TEST(Graphs, ParameterCountsAreThePublishedOnes) {
  const std::map<std::string_view, int64_t> published = {
      {"vgg16", 138'357'544},  // torchvision, as the next five
      {"resnet18", 11'689'512},
      {"resnet18_ddp", 11'689'512},
      {"resnet50", 25'557'032},
      {"resnet152", 60'192'808},
      {"convnext_tiny", 28'589'128},
      {"unet", 31'037'698},                      // github.com/milesial/Pytorch-UNet, two classes
      {"vit_small", 22'050'664},                 // timm, vit_small_patch16_224
      {"bert_base", 109'482'240 + 768 * 2 + 2},  // the published model and the two-class head
      {"gpt2_small", 124'439'808},
      {"gpt2_small_adamw", 124'439'808},
      {"lstm_lm", 66'034'000},  // pytorch/examples, word_language_model with 1500 units
  };
  for (const auto& [name, count] : published) {
    EXPECT_EQ(external_bytes(graph_of(name), Role::param), count * 4) << name;
  }
}

TEST(Graphs, AdamWKeepsTwoStatesForEachParameter) {
  const Graph& graph = graph_of("gpt2_small_adamw");
  EXPECT_EQ(external_bytes(graph, Role::optimizer_state), 2 * external_bytes(graph, Role::param));
}

TEST(Graphs, SizesReachFromAHundredToFiftyThousandOps) {
  size_t smallest = SIZE_MAX;
  size_t largest = 0;
  for (const NamedGraph& named : named_graphs()) {
    smallest = std::min(smallest, graph_of(named.name).ops.size());
    largest = std::max(largest, graph_of(named.name).ops.size());
  }
  EXPECT_LE(smallest, 100u);
  EXPECT_GE(largest, 50'000u);
  const auto thousands = [](std::string_view name) { return graph_of(name).ops.size() / 1000; };
  EXPECT_EQ(thousands("deep_gpt_5k"), 5u);
  EXPECT_EQ(thousands("deep_gpt_20k"), 20u);
  EXPECT_EQ(thousands("deep_gpt_50k"), 50u);
}

TEST(Graphs, EveryFeatureOfTheFormatOccurs) {
  const Graph& resnet = graph_of("resnet18_ddp");
  EXPECT_TRUE(any_op(resnet, [](const Op& op) { return op.once; }));
  EXPECT_TRUE(any_op(resnet, [](const Op& op) { return !op.effects.empty(); }));
  EXPECT_TRUE(any_op(resnet, [](const Op& op) { return op.creates.size() == 3; }));
  EXPECT_TRUE(any_op(resnet, [](const Op& op) { return op.workspace_bytes > 0; }));
  EXPECT_TRUE(any_op(resnet, [&](const Op& op) {
    return op.kind == "aten::relu_" && !writes_externals(resnet, op);
  }));
  EXPECT_TRUE(any_op(resnet, [&](const Op& op) {
    return op.phase == Phase::forward && writes_externals(resnet, op);  // num_batches_tracked
  }));
  EXPECT_TRUE(any_op(resnet, [](const Op& op) {
    return op.kind == "aten::add_" && op.phase == Phase::backward;  // accumulation
  }));
  const Graph& gpt = graph_of("gpt2_small");
  EXPECT_TRUE(any_op(gpt, [](const Op& op) { return op.random && !op.updates.empty(); }));
  EXPECT_TRUE(any_op(gpt, [](const Op& op) { return !op.reuse.empty(); }));
}

TEST(Graphs, EveryOpTakesTimeAndNamesItsLayer) {
  for (const NamedGraph& named : named_graphs()) {
    for (const Op& op : graph_of(named.name).ops) {
      EXPECT_GT(op.time_ns, 0) << named.name << " " << op.name;
      EXPECT_FALSE(op.scope.empty()) << named.name << " " << op.name;
    }
  }
}

// A result that nothing reads is a sign of a backward that forgot to.
TEST(Graphs, EveryStorageIsReadOrAnOutput) {
  for (const NamedGraph& named : named_graphs()) {
    const Graph& graph = graph_of(named.name);
    std::vector<bool> used(graph.storages.size(), false);
    for (const StorageId id : graph.outputs) used[index(id)] = true;
    for (const Op& op : graph.ops) {
      for (const Value& value : op.reads) used[index(value.storage)] = true;
    }
    for (const Storage& storage : graph.storages) {
      EXPECT_TRUE(used[static_cast<size_t>(&storage - graph.storages.data())] ||
                  storage.role == Role::buffer)
          << named.name << " " << storage.name;
    }
  }
}

TEST(Graphs, GradientsAreOutputsOrFeedTheOptimizer) {
  size_t with_optimizer = 0;
  for (const NamedGraph& named : named_graphs()) {
    const Graph& graph = graph_of(named.name);
    int64_t gradient_bytes = 0;
    for (const Storage& storage : graph.storages) {
      if (storage.role != Role::gradient) continue;
      gradient_bytes += storage.bytes;
      EXPECT_EQ(storage.output, !ends_with_optimizer(graph)) << named.name << " " << storage.name;
    }
    EXPECT_EQ(gradient_bytes, external_bytes(graph, Role::param)) << named.name;
    with_optimizer += ends_with_optimizer(graph) ? 1 : 0;
  }
  EXPECT_GT(with_optimizer, 0u);
  EXPECT_LT(with_optimizer, named_graphs().size());
}

TEST(Graphs, ActivationsDominateThePeak) {
  for (const NamedGraph& named : named_graphs()) {
    const KeepAll all = keep_all(graph_of(named.name));
    EXPECT_GT(2 * all.activation_bytes, all.peak_bytes) << named.name;
    std::cout << named.name << " " << all.activation_bytes * 100 / all.peak_bytes << " %\n";
  }
}

TEST(Tape, AddsASecondGradientInPlaceOnlyWhereNothingElseHoldsTheFirst) {
  Tape tape;
  const Tensor x = linear(tape, "fc", tape.input("x", {4, 8}), 8);
  // y = x + relu(x): the sum hands one gradient to both. When relu's share reaches x, relu's
  // backward has let go of it, so that it may be overwritten.
  const Tensor y = add(tape, "add", x, relu(tape, "relu", x));
  // z = y + y: both shares are the same storage.
  const Tensor z = add(tape, "twice", y, y);
  const Graph graph = tape.finish(cross_entropy(tape, z, tape.input("target", {4}, 8)));
  std::vector<std::string> kinds;
  for (const Op& op : graph.ops) {
    if (op.phase == Phase::backward) kinds.push_back(op.kind);
  }
  EXPECT_EQ(kinds,
            (std::vector<std::string>{
                "aten::ones_like", "aten::nll_loss_backward", "aten::_log_softmax_backward_data",
                "aten::add", "aten::threshold_backward", "aten::add_", "aten::mm", "aten::sum"}));
}

TEST(Tape, RefusesToReadWhatWasOverwritten) {
  Tape tape;
  const Tensor x = linear(tape, "fc", tape.input("x", {4, 8}), 8);
  const Tensor y = gelu(tape, "gelu", x);
  relu_(tape, "relu", x);  // gelu's backward needs x as it was
  const Tensor target = tape.input("target", {4}, 8);
  EXPECT_THROW(tape.finish(cross_entropy(tape, y, target)), std::logic_error);
}

}  // namespace graphs_test
}  // namespace remat::bench
