// SPDX-License-Identifier: Apache-2.0
#include "bench/generator/graphs.h"

#include <algorithm>
#include <array>
#include <vector>

#include "bench/generator/networks.h"
#include "bench/generator/optimizers.h"
#include "remat/core/error.h"
#include "remat/core/rewrite.h"
#include "remat/core/simulate.h"
#include "remat/core/units.h"

namespace remat::bench {
namespace {

constexpr ResNet kResNet50 = {.blocks = {3, 4, 6, 3}, .bottleneck = true, .batch = 32};
constexpr ResNet kResNet152 = {.blocks = {3, 8, 36, 3}, .bottleneck = true, .batch = 16};

// Narrow and short, so that depth is what makes it large.
constexpr Gpt deep_gpt(int64_t layers) {
  return {
      .vocabulary = 8192, .width = 512, .heads = 8, .layers = layers, .batch = 8, .tokens = 256};
}

constexpr std::array<NamedGraph, 16> kGraphs = {{
    {"vgg16", "VGG-16, batch 32, 224x224", [] { return vgg16(32); }},
    {"mlp", "MLP, 8 hidden layers of 1024, batch 8192; SGD with momentum",
     [] { return mlp(8192, 1024, 8, {.optimizer = sgd_momentum}); }},
    {"unet", "U-Net, batch 8, 256x256, two classes", [] { return unet(8, 256); }},
    {"resnet18", "ResNet-18, batch 64, 224x224", [] { return resnet({.batch = 64}); }},
    {"resnet50", "ResNet-50, batch 32, 224x224", [] { return resnet(kResNet50); }},
    {"resnet18_ddp", "ResNet-18, batch 64, gradients averaged by allreduce; SGD with momentum",
     [] { return resnet({.batch = 64}, {.optimizer = sgd_momentum, .bucket_bytes = 25 * MiB}); }},
    {"vit_small", "ViT-S/16, batch 64, 224x224", [] { return vit_small(64); }},
    {"convnext_tiny", "ConvNeXt-T, batch 32, 224x224, stochastic depth",
     [] { return convnext_tiny(32); }},
    {"gpt2_small", "GPT-2 small, batch 4, 1024 tokens, dropout, tied embedding",
     [] { return gpt(Gpt{}); }},
    {"bert_base", "BERT-base with a two-class head, batch 16, 512 tokens, dropout",
     [] { return bert_base(16, 512); }},
    {"resnet152", "ResNet-152, batch 16, 224x224", [] { return resnet(kResNet152); }},
    {"gpt2_small_adamw", "GPT-2 small, batch 4, 1024 tokens; AdamW",
     [] { return gpt(Gpt{}, {.optimizer = adamw}); }},
    {"lstm_lm", "LSTM language model, 2 layers of 1500, batch 128, 35 tokens unrolled; clipped SGD",
     [] { return lstm_language_model(128, 35, {.optimizer = clipped_sgd}); }},
    {"deep_gpt_5k", "GPT with 89 layers of 512, batch 8, 256 tokens",
     [] { return gpt(deep_gpt(89)); }, false},
    {"deep_gpt_20k", "GPT with 122 layers of 512, batch 8, 256 tokens; AdamW",
     [] { return gpt(deep_gpt(122), {.optimizer = adamw}); }, false},
    {"deep_gpt_50k", "GPT with 893 layers of 512, batch 8, 256 tokens",
     [] { return gpt(deep_gpt(893)); }, false},
}};

}  // namespace

std::span<const NamedGraph> named_graphs() { return kGraphs; }

const NamedGraph* graph_named(std::string_view name) {
  const auto found = std::find_if(kGraphs.begin(), kGraphs.end(),
                                  [&](const NamedGraph& named) { return named.name == name; });
  return found == kGraphs.end() ? nullptr : &*found;
}

KeepAll keep_all(const Graph& graph) {
  std::vector<OpId> order;
  for (size_t i = 0; i < graph.ops.size(); ++i) order.push_back(static_cast<OpId>(i));
  const Simulation simulation = simulate(graph, rewrite(graph, order, {.reuse = false}));
  const Moment& peak = simulation.timeline.at(simulation.peak_step);
  return {.peak_bytes = simulation.peak_bytes,
          .activation_bytes = peak.by_role[static_cast<size_t>(Role::activation)],
          .time_ns = simulation.time_ns};
}

std::string table_head() {
  return "| graph | what | ops | storages | keep-all peak | activations in it | time |\n"
         "|---|---|---:|---:|---:|---:|---:|\n";
}

std::string table_row(const NamedGraph& named, const Graph& graph) {
  const KeepAll all = keep_all(graph);
  return detail::concat("| `", named.name, "` | ", named.description, " | ", graph.ops.size(),
                        " | ", graph.storages.size(), " | ", format_bytes(all.peak_bytes), " | ",
                        all.activation_bytes * 100 / all.peak_bytes, " % | ",
                        format_ns(all.time_ns), " |\n");
}

}  // namespace remat::bench
