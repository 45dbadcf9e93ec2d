// SPDX-License-Identifier: Apache-2.0
#include "remat/models/zoo.h"

#include <algorithm>
#include <numeric>

#include "remat/core/error.h"
#include "remat/models/tasks.h"

namespace remat::models {
namespace {

using remat::detail::concat;

struct SizeField {
  const char* name;
  int64_t ModelSize::*value;
};
constexpr SizeField kSizeFields[] = {{"batch", &ModelSize::batch},
                                     {"image", &ModelSize::image},
                                     {"sequence", &ModelSize::sequence},
                                     {"layers", &ModelSize::layers},
                                     {"width", &ModelSize::width}};

constexpr int64_t kLargestSize = 1'000'000;  // far from where a product of sizes would overflow

std::string sizes_of(const ZooEntry& entry) {
  std::string names;
  for (const SizeField& field : kSizeFields) {
    if (entry.defaults.*field.value == 0) continue;
    if (!names.empty()) names += ", ";
    names += field.name;
  }
  return names;
}

// The wanted size with defaults filled in.
ModelSize resolve(const ZooEntry& entry, const ModelSize& wanted) {
  ModelSize size = entry.defaults;
  for (const SizeField& field : kSizeFields) {
    const int64_t value = wanted.*field.value;
    if (value == 0) continue;
    if (value < 0 || value > kLargestSize) {
      throw Error(concat("[models] ", entry.name, ": ", field.name, " ", value, "; expected 1 to ",
                         kLargestSize));
    }
    if (entry.defaults.*field.value == 0) {
      throw Error(concat("[models] ", entry.name, " has no size '", field.name, "'; it has ",
                         sizes_of(entry)));
    }
    size.*field.value = value;
  }
  return size;
}

using Make = std::function<TrainingTask(std::string_view name, const ModelSize& resolved)>;

ZooEntry entry(ZooEntry described, Make make) {
  ZooEntry made = described;
  made.make = [described = std::move(described), make = std::move(make)](const ModelSize& wanted) {
    return make(described.name, resolve(described, wanted));
  };
  return made;
}

ZooEntry resnet(int64_t depth, int64_t batch, int64_t parameters) {
  return entry({.name = concat("resnet", depth),
                .paper = "https://arxiv.org/abs/1512.03385",
                .description = concat("ResNet-", depth, ": BatchNorm, ReLU in place"),
                .defaults = {.batch = batch, .image = 224, .width = 64},
                .published_parameters = parameters},
               [depth](std::string_view name, const ModelSize& size) {
                 return make_resnet(name, size, depth);
               });
}

ZooEntry gpt2_small(const char* name, const char* description, bool fused) {
  return entry({.name = name,
                .paper = "https://cdn.openai.com/better-language-models/"
                         "language_models_are_unsupervised_multitask_learners.pdf",
                .description = description,
                .defaults = {.batch = 4, .sequence = 256, .layers = 12, .width = 768},
                .largest = {.sequence = 1024},
                .published_parameters = 124'439'808},
               [fused](std::string_view model, const ModelSize& size) {
                 return make_gpt(model, size, fused);
               });
}

std::vector<ZooEntry> build_zoo() {
  return {
      resnet(18, 16, 11'689'512),
      resnet(50, 8, 25'557'032),
      resnet(152, 8, 60'192'808),
      entry({.name = "bert_base",
             .paper = "https://arxiv.org/abs/1810.04805",
             .description = "BERT-base, pre-training: attention spelled out, dropout 0.1",
             .defaults = {.batch = 8, .sequence = 128, .layers = 12, .width = 768},
             .largest = {.sequence = 512},
             .published_parameters = 109'482'240,
             .head_parameters = 624'188},
            make_bert),
      gpt2_small("gpt2_small", "GPT-2 small: attention spelled out, dropout 0.1", false),
      gpt2_small("gpt2_small_fused", "GPT-2 small: fused attention, dropout 0.1 elsewhere", true),
      entry({.name = "vit_small",
             .paper = "https://arxiv.org/abs/2010.11929",
             .description = "ViT-S/16: fused attention",
             .defaults = {.batch = 8, .image = 224, .layers = 12, .width = 384},
             .published_parameters = 22'050'664},
            make_vit),
      entry({.name = "unet",
             .paper = "https://arxiv.org/abs/1505.04597",
             .description = "U-Net: long skip connections, BatchNorm",
             .defaults = {.batch = 2, .image = 256, .layers = 4, .width = 64},
             .published_parameters = 31'037'698},
            make_unet),
      entry({.name = "convnext_tiny",
             .paper = "https://arxiv.org/abs/2201.03545",
             .description = "ConvNeXt-T: depthwise convolutions, stochastic depth 0.1",
             .defaults = {.batch = 8, .image = 224, .width = 96},
             .published_parameters = 28'589'128},
            make_convnext),
      entry({.name = "lstm_lm",
             .paper = "https://arxiv.org/abs/1409.2329",
             .description = "LSTM language model, medium: dropout 0.5",
             .defaults = {.batch = 20, .sequence = 35, .layers = 2, .width = 650},
             .published_parameters = 19'780'400},
            make_lstm_lm),
      entry({.name = "mlp_mixer",
             .paper = "https://arxiv.org/abs/2105.01601",
             .description = "MLP-Mixer-B/16",
             .defaults = {.batch = 8, .image = 224, .layers = 12, .width = 768},
             .published_parameters = 59'880'472},
            make_mlp_mixer),
  };
}

// How many letters to add, remove or change to make one of the other.
size_t edits_between(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0]++;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t changed = diagonal + (a[i] != b[j]);
      diagonal = row[j + 1];
      row[j + 1] = std::min({changed, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

}  // namespace

const std::vector<ZooEntry>& zoo() {
  static const std::vector<ZooEntry> entries = build_zoo();
  return entries;
}

const ZooEntry& find_model(std::string_view name) {
  const auto edits = [name](const ZooEntry& one) { return edits_between(name, one.name); };
  const ZooEntry& nearest = *std::ranges::min_element(zoo(), {}, edits);
  if (nearest.name == name) return nearest;
  std::string names;
  for (const ZooEntry& one : zoo()) names += (names.empty() ? "" : ", ") + one.name;
  throw Error(concat("[models] there is no model '", name.substr(0, 60), "'; did you mean '",
                     nearest.name, "'? There are ", names));
}

}  // namespace remat::models
