// SPDX-License-Identifier: Apache-2.0
#include "remat/models/zoo.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "remat/core/error.h"
#include "remat/libtorch/intercept.h"
#include "remat/models/bert.h"
#include "remat/models/gpt.h"
#include "remat/models/resnet.h"
#include "tests/libtorch/testing.h"
#include "tests/libtorch/tiny_zoo.h"

namespace remat::models {
namespace {

using at::Tensor;
using testing::same_bits;
using testing::tiny_size;

int64_t parameter_count(const torch::nn::Module& module) {
  int64_t count = 0;
  for (const Tensor& parameter : module.parameters()) count += parameter.numel();
  return count;
}

// What an error says; empty when there is none.
template <typename Function>
std::string error_of(Function function) {
  try {
    function();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// Notes every op with its scope.
class OpWatcher : public detail::OpInterceptor {
 public:
  void intercept(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                 torch::jit::Stack& stack) override {
    const std::string name = op.schema().name();
    ops.insert(name);
    scopes.insert(detail::current_scope());
    if (detail::current_scope().empty()) outside_scopes.insert(name);
    if (op.hasTag(at::Tag::data_dependent_output) || op.hasTag(at::Tag::dynamic_output_shape)) {
      host_reads.insert(name);
    }
    detail::run_op(op, keys, stack);
  }

  std::set<std::string> ops, scopes, outside_scopes, host_reads;
};

OpWatcher watch_forward(const ZooEntry& entry) {
  const TrainingTask task = entry.make(tiny_size(entry));
  const std::vector<Tensor> batch = task.make_batch(1);
  OpWatcher watcher;
  detail::InterceptGuard guard(&watcher);
  task.loss(batch);
  return watcher;
}

class Zoo : public ::testing::TestWithParam<std::string> {
 protected:
  const ZooEntry& entry = find_model(GetParam());
};

TEST_P(Zoo, HasThePublishedParameterCount) {
  const TrainingTask task = entry.make({});
  EXPECT_EQ(parameter_count(*task.module), entry.published_parameters + entry.head_parameters);
  if (entry.head_parameters > 0) {  // the published model is a part of what is trained
    EXPECT_EQ(parameter_count(*task.module->children().front()), entry.published_parameters);
  }
  EXPECT_TRUE(entry.paper.starts_with("https://")) << entry.paper;
}

TEST_P(Zoo, TrainsEveryParameter) {
  torch::manual_seed(1);
  const TrainingTask task = entry.make(tiny_size(entry));
  EXPECT_TRUE(task.module->is_training());
  const Tensor loss = task.loss(task.make_batch(1));
  EXPECT_EQ(loss.dim(), 0);
  EXPECT_TRUE(loss.isfinite().item<bool>());
  loss.backward();
  for (const auto& parameter : task.module->named_parameters()) {
    ASSERT_TRUE(parameter->grad().defined()) << parameter.key();
    EXPECT_TRUE(parameter->grad().isfinite().all().item<bool>()) << parameter.key();
  }
}

TEST_P(Zoo, BatchesFollowTheSeedAndLeaveTheDefaultGeneratorAlone) {
  const TrainingTask task = entry.make(tiny_size(entry));
  const Tensor before = testing::generator_state();
  const auto batch = task.make_batch(1);
  EXPECT_TRUE(same_bits(batch, task.make_batch(1)));
  EXPECT_FALSE(same_bits(batch, task.make_batch(2)));
  EXPECT_TRUE(same_bits(before, testing::generator_state()));
  EXPECT_EQ(batch[0].size(0), 2);
}

TEST_P(Zoo, EveryForwardOpHasAScopeAndNoneReadsOnTheHost) {
  const OpWatcher watcher = watch_forward(entry);
  EXPECT_GE(watcher.scopes.size(), 5U);
  EXPECT_TRUE(watcher.scopes.contains("loss"));
  EXPECT_EQ(watcher.outside_scopes, std::set<std::string>{});
  EXPECT_EQ(watcher.host_reads, std::set<std::string>{});
}

TEST_P(Zoo, RefusesASizeItDoesNotHaveAndOnesOutOfRange) {
  const std::string image = error_of([&] { entry.make({.image = 64, .sequence = 8}); });
  EXPECT_NE(image.find("has no size '"), std::string::npos) << image;
  EXPECT_NE(image.find("it has batch, "), std::string::npos) << image;
  for (const int64_t batch : {int64_t{-1}, int64_t{1'000'001}, INT64_MAX}) {
    EXPECT_EQ(
        error_of([&] { entry.make({.batch = batch}); }),
        detail::concat("[models] ", entry.name, ": batch ", batch, "; expected 1 to 1000000"));
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Zoo, ::testing::ValuesIn(testing::zoo_names()),
                         [](const auto& instance) { return instance.param; });

TEST(ZooScopes, NameBlockAndLayer) {
  const auto scopes_of = [](const char* name) { return watch_forward(find_model(name)).scopes; };
  EXPECT_TRUE(scopes_of("resnet50").contains("layer1.0.conv2"));
  EXPECT_TRUE(scopes_of("bert_base").contains("layer1.attention.projection"));
  EXPECT_TRUE(scopes_of("convnext_tiny").contains("stage2.8.feed_forward.gelu"));
  EXPECT_TRUE(scopes_of("unet").contains("up1.widen"));
}

TEST(ZooAttention, IsFusedOnlyWhereTheNameSaysSo) {
  const std::string fused = "aten::_scaled_dot_product_flash_attention_for_cpu";
  const auto ops_of = [](const char* name) { return watch_forward(find_model(name)).ops; };
  EXPECT_FALSE(ops_of("gpt2_small").contains(fused));
  EXPECT_TRUE(ops_of("gpt2_small").contains("aten::_softmax"));
  EXPECT_TRUE(ops_of("gpt2_small_fused").contains(fused));
  EXPECT_FALSE(ops_of("gpt2_small_fused").contains("aten::_softmax"));
}

TEST(ZooAttention, BothSpellingsComputeTheSame) {
  const auto gpt = [](bool fused) {
    torch::manual_seed(1);
    Gpt model(GptOptions{
        .vocabulary = 50, .layers = 2, .heads = 2, .width = 32, .fused_attention = fused});
    model->eval();
    return model->forward(torch::randint(50, {3, 16}));
  };
  EXPECT_TRUE(at::allclose(gpt(false), gpt(true), 1e-4, 1e-6));
  const auto bert = [](bool fused) {
    torch::manual_seed(1);
    Bert model(BertOptions{
        .vocabulary = 50, .layers = 2, .heads = 2, .width = 32, .fused_attention = fused});
    model->eval();
    return model->forward(torch::randint(50, {3, 16}), torch::randint(2, {3, 16}));
  };
  EXPECT_TRUE(at::allclose(bert(false), bert(true), 1e-4, 1e-6));
}

TEST(ZooAttention, OfGptLooksOnlyBack) {
  torch::manual_seed(1);
  Gpt model(
      GptOptions{.vocabulary = 50, .layers = 2, .heads = 2, .width = 32, .fused_attention = false});
  model->eval();
  const Tensor tokens = torch::randint(50, {1, 8});
  Tensor other_end = tokens.clone();
  other_end[0][7] = (tokens[0][7] + 1) % 50;
  const Tensor a = model->forward(tokens), b = model->forward(other_end);
  EXPECT_TRUE(at::allclose(a.narrow(1, 0, 7), b.narrow(1, 0, 7)));
  EXPECT_FALSE(at::allclose(a.select(1, 7), b.select(1, 7)));
}

TEST(ZooSizes, ReachTheModel) {
  const auto count = [](const char* name, const ModelSize& size) {
    return parameter_count(*find_model(name).make(size).module);
  };
  const int64_t two_layers = count("gpt2_small", {.layers = 2, .width = 128});
  const int64_t three_layers = count("gpt2_small", {.layers = 3, .width = 128});
  EXPECT_EQ(three_layers - two_layers, 12 * 128 * 128 + 13 * 128);
  EXPECT_LT(count("resnet18", {.width = 8}), count("resnet18", {.width = 16}));
  const auto batch =
      find_model("lstm_lm").make({.batch = 3, .sequence = 5, .width = 8}).make_batch(1);
  EXPECT_EQ(batch[0].sizes(), (std::vector<int64_t>{3, 5}));
}

TEST(ZooSizes, ThatAModelCannotTakeAreRefused) {
  const struct {
    const char* model;
    ModelSize size;
    const char* says;
  } cases[] = {
      {"gpt2_small", {.width = 100}, "width 100; expected a multiple of 64"},
      {"bert_base", {.width = 70}, "width 70; expected a multiple of 64"},
      {"vit_small", {.width = 65}, "width 65; expected a multiple of 64"},
      {"mlp_mixer", {.width = 7}, "width 7; expected a multiple of 2"},
      {"gpt2_small_fused", {.sequence = 1025}, "sequence 1025; expected at most 1024"},
      {"bert_base", {.sequence = 513}, "sequence 513; expected at most 512"},
      {"bert_base", {.sequence = 1}, "sequence 1; expected at least 2"},
      {"vit_small", {.image = 40}, "image 40; expected a multiple of 16"},
      {"mlp_mixer", {.image = 8}, "image 8; expected a multiple of 16"},
      {"unet", {.image = 40}, "image 40; expected a multiple of 16"},
      {"unet", {.layers = 63}, "layers 63; expected at most 10"},
      {"unet", {.batch = 1, .image = 16}, "batch 1; expected at least 2 at image 16"},
      {"resnet18", {.image = 31}, "image 31; expected at least 32"},
      {"resnet50", {.batch = 1, .image = 32}, "batch 1; expected at least 2 at image 32"},
      {"convnext_tiny", {.image = 16}, "image 16; expected at least 32"},
  };
  for (const auto& each : cases) {
    const std::string error = error_of([&] { find_model(each.model).make(each.size); });
    EXPECT_TRUE(error.starts_with(detail::concat("[models] ", each.model, ": "))) << error;
    EXPECT_NE(error.find(each.says), std::string::npos) << error;
  }
  EXPECT_THROW(ResNetOptions::of_depth(20), Error);
}

// The smallest sizes that are allowed do run.
TEST(ZooSizes, AtTheLimitsWork) {
  const struct {
    const char* model;
    ModelSize size;
  } cases[] = {{"resnet18", {.batch = 1, .image = 33, .width = 1}},
               {"convnext_tiny", {.batch = 1, .image = 32, .width = 1}},
               {"unet", {.batch = 1, .image = 4, .layers = 1, .width = 1}},
               {"vit_small", {.batch = 1, .image = 16, .layers = 1, .width = 1}},
               {"mlp_mixer", {.batch = 1, .image = 16, .layers = 1, .width = 2}},
               {"gpt2_small", {.batch = 1, .sequence = 1, .layers = 1, .width = 1}},
               {"bert_base", {.batch = 1, .sequence = 2, .layers = 1, .width = 1}},
               {"lstm_lm", {.batch = 1, .sequence = 1, .layers = 1, .width = 1}}};
  for (const auto& each : cases) {
    const TrainingTask task = find_model(each.model).make(each.size);
    const Tensor loss = task.loss(task.make_batch(1));
    loss.backward();
    EXPECT_TRUE(loss.isfinite().item<bool>()) << each.model;
  }
}

// The table says what the models check.
TEST(Zoo, LargestSizesAreTheLargest) {
  for (const ZooEntry& entry : zoo()) {
    if (entry.largest.sequence == 0) continue;
    const ModelSize most = {.sequence = entry.largest.sequence, .layers = 1, .width = 1};
    const ModelSize more = {.sequence = entry.largest.sequence + 1, .layers = 1, .width = 1};
    EXPECT_EQ(error_of([&] { entry.make(most); }), "") << entry.name;
    EXPECT_NE(error_of([&] { entry.make(more); }), "") << entry.name;
  }
  EXPECT_EQ(find_model("gpt2_small").largest.sequence, 1024);
}

TEST(FindModel, SuggestsTheNearestNameAndListsAll) {
  const std::string error = error_of([] { find_model("resnet5O"); });
  EXPECT_NE(error.find("no model 'resnet5O'; did you mean 'resnet50'?"), std::string::npos)
      << error;
  for (const std::string& name : testing::zoo_names()) {
    EXPECT_NE(error.find(name), std::string::npos) << name;
  }
}

}  // namespace
}  // namespace remat::models
