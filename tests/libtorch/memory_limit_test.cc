// SPDX-License-Identifier: Apache-2.0
//
// Steps in a memory cgroup that is too small for the plain loop. Each training is a process of its own, this
// program with --child, which prints its numbers by name.
#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iostream>
#include <map>
#include <sstream>

#include "remat/libtorch/available_memory.h"
#include "remat/libtorch/budget.h"
#include "remat/libtorch/step.h"
#include "remat/libtorch/trace.h"
#include "remat/models/gpt.h"
#include "remat/models/resnet.h"
#include "tests/libtorch/memory_cgroup.h"
#include "tests/libtorch/testing.h"

namespace remat::testing {
namespace {

using at::Tensor;
namespace F = torch::nn::functional;

constexpr int64_t kSteps = 5;
constexpr int64_t kStepsLowered = 6;  // the limit falls in the fourth

// Of the group: a third of what a plain step needs. What is not in a budget (recordings, plans, holes in the heap) is
// 10 to 25 MB, however large it is.
int64_t limit_of(const std::string& model) { return (model == "gpt" ? 640 : 1280) * MiB; }

struct Training {
  std::shared_ptr<torch::nn::Module> module;
  std::function<Tensor(const Batch&)> loss;
  std::function<Batch()> next_batch;
};

Training gpt() {
  models::Gpt model(models::GptOptions{
      .vocabulary = 512, .context = 512, .layers = 4, .heads = 4, .width = 256, .fused_attention = false});
  return {model.ptr(),
          [model](const Batch& batch) mutable {
            return F::cross_entropy(model->forward(batch[0]).flatten(0, 1), batch[1].flatten());
          },
          [] {
            const Tensor tokens = torch::randint(512, {22, 513});
            return Batch{tokens.slice(1, 0, 512).clone(), tokens.slice(1, 1, 513).clone()};
          }};
}

Training resnet() {
  models::ResNetOptions options = models::ResNetOptions::of_depth(50);
  options.width = 32;
  models::ResNet model(options);
  return {model.ptr(),
          [model](const Batch& batch) mutable { return F::cross_entropy(model->forward(batch[0]), batch[1]); },
          [] { return Batch{torch::randn({125, 3, 192, 192}), torch::randint(1000, {125})}; }};
}

int64_t number_in(const std::string& path) {
  std::ifstream file(path);
  int64_t number = 0;
  file >> number;
  return number;
}

void print_loss(int64_t step, const Tensor& loss) {
  const float number = loss.item<float>();
  uint32_t bits = 0;
  std::memcpy(&bits, &number, sizeof(bits));
  std::cout << "loss" << step << " " << bits << std::endl;
}

// Libraries, threads, the buffers of matrix products and the code of planners are there to stay: they are not
// what a budget is about.
void warm_up(const std::string& model) {
  const Training training = model == "gpt" ? gpt() : resnet();
  const Batch batch = training.next_batch();
  const auto small = [](const Tensor& tensor) {
    Tensor part = tensor.slice(0, 0, 2);
    for (int64_t i = 1; i < part.dim(); ++i) {
      part = part.size(i) > 32 ? part.slice(i, 0, 32) : part;
    }
    return part.clone();
  };
  Step step([&](const Batch& given) -> Batch {
    const Tensor loss = training.loss(given);
    loss.backward();
    return {loss.detach()};
  }, {.budget_bytes = GiB, .plan_seconds = 0.1, .measure_seconds = 0});
  step({small(batch[0]), small(batch[1])});
}

// Whether a notice says that memory is short, though nobody waits for it: then too little is left beside the arena.
bool tells_of_too_little_left(const std::string& notice) {
  const size_t left = notice.find(" left, ");
  return notice.starts_with("memory is short") && left != std::string::npos &&
         std::stod(notice.substr(left + 7)) <= 10;
}

// --child MODEL plain|step|auto|losses [usage file of the group]. With "auto" the step finds its budget itself, and looks
// whether memory is short.
int run_child(const std::vector<std::string>& words) {
  // Freed memory goes back to the system at once, whatever was allocated before.
  mallopt(M_MMAP_THRESHOLD, 128 * 1024);
  warm_up(words[0]);
  torch::manual_seed(5);
  malloc_trim(0);
  const bool finds_budget = words[1] == "auto";
  const bool planned = words[1] == "step" || finds_budget;
  const std::string usage_file = words.size() > 2 ? words[2] : "";
  const int64_t usage = usage_file.empty() ? 0 : number_in(usage_file);
  const int64_t budget = (limit_of(words[0]) - usage) / 10 * 9;  // as available_memory() would leave
  const Training training = words[0] == "gpt" ? gpt() : resnet();
  torch::optim::SGD optimizer(training.module->parameters(), torch::optim::SGDOptions(0.01).momentum(0.9));
  const auto function = [&](const Batch& batch) -> Batch {
    const Tensor loss = training.loss(batch);
    loss.backward();
    optimizer.step();
    optimizer.zero_grad();
    return {loss.detach()};
  };
  if (words[1] == "losses") {  // of a model that is not updated
    for (int64_t i = 0; i < kStepsLowered; ++i) {
      const Tensor loss = training.loss(training.next_batch());
      loss.backward();
      print_loss(i, loss);
      optimizer.zero_grad();
    }
    return 0;
  }
  std::vector<std::string> notices;
  StepOptions options{.budget_bytes = budget,
                      .plan_seconds = 2,
                      .measure_seconds = 0,
                      .notice = [&](const std::string& text) { notices.push_back(text); }};
  if (finds_budget) {
    options.budget_of = available_memory();
    options.watch_memory = true;
  }
  Step step(function, std::move(options));
  for (int64_t i = 0; i < kSteps; ++i) {
    const Batch batch = training.next_batch();
    const Tensor loss = planned ? step(batch)[0] : function(batch)[0];
    print_loss(i, loss);
  }
  int64_t digest = 0;
  const auto add = [&](const Tensor& tensor) {
    digest = digest * 31 + static_cast<int64_t>(detail::digest(tensor.const_data_ptr(), tensor.nbytes()) >> 8);
  };
  for (const Tensor& each : training.module->parameters()) {
    add(each);
  }
  for (const Tensor& each : training.module->buffers()) {
    add(each);
  }
  add(generator_state());
  std::cout << "state " << digest << "\nusage " << usage << "\nleft_at_first " << budget << "\n";
  if (!usage_file.empty()) {
    std::cout << "at_end " << number_in(usage_file) << "\n";
  }
  if (planned) {
    const StepReport report = step.report();
    std::cout << "budget " << report.budget_bytes << "\nplain_peak " << report.eager_peak_bytes << "\nplanned " << report.planned_steps
              << "\nspilled " << report.spilled_bytes << "\nreserved " << report.peak_bytes << "\ntoo_little_left "
              << std::ranges::count_if(notices, tells_of_too_little_left) << "\n";
    for (const std::string& each : notices) {
      std::cerr << each << "\n";
    }
  }
  return 0;
}

// --lowered LIMIT_FILE: somebody lowers the limit of the group while a step runs. What the process has stays below it,
// so that nobody is killed; the next steps must do with less. What is left counts without the page cache, which the
// kernel gives up: how much of that the group holds depends on which files were read before.
int run_lowered_child(const std::string& limit_file) {
  mallopt(M_MMAP_THRESHOLD, 128 * 1024);
  torch::manual_seed(5);
  const Training training = gpt();
  int64_t calls = 0;
  int64_t lowered_to = 0;
  std::vector<std::string> notices;
  Step step(
      [&](const Batch& batch) -> Batch {
        const Tensor loss = training.loss(batch);
        if (++calls == 4) {
          const int64_t taken = number_in(limit_file) - detail::available_bytes("/");
          std::ofstream(limit_file) << taken + 24 * MiB << std::flush;  // less than a twentieth of the arena
          lowered_to = number_in(limit_file);
        }
        loss.backward();
        return {loss.detach()};
      },
      {.budget_bytes = 700 * MiB,
       .plan_seconds = 0.5,
       .measure_seconds = 0,
       .watch_memory = true,
       .notice = [&](const std::string& text) { notices.push_back(text); }});
  for (int64_t i = 0; i < kStepsLowered; ++i) {
    print_loss(i, step(training.next_batch())[0]);
    for (const Tensor& each : training.module->parameters()) {
      each.mutable_grad().reset();
    }
  }
  std::cout << "lowered_to " << lowered_to << "\nbudget " << step.report().budget_bytes << "\nrecorded "
            << step.report().plain_steps << "\nnotices " << notices.size() << "\n";
  for (const std::string& each : notices) {
    std::cout << "notice: " << each << "\n";
  }
  return 0;
}

std::map<std::string, int64_t> numbers_in(const std::string& output) {
  std::map<std::string, int64_t> numbers;
  std::istringstream in(output);
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::string name;
    int64_t number = 0;
    if (words >> name >> number) {
      numbers[name] = number;
    }
  }
  return numbers;
}

// A model, and who finds the budget: this test (step), or the step itself (auto).
class MemoryLimits : public ::testing::TestWithParam<std::pair<std::string, std::string>> {};

TEST_P(MemoryLimits, TrainsWhatThePlainLoopCannotWithTheSameBits) {
  const MemoryCgroup unlimited(int64_t{20} << 30);
  const auto& [model, way] = GetParam();
  const int64_t limit = limit_of(model);
  const MemoryCgroup limited(limit);
  if (!limited.made()) {
    REMAT_SKIP("a memory cgroup cannot be made here: " << limited.why_not());
  }
  const std::string usage_file =
      limited.folder() + (std::ifstream(limited.folder() + "/memory.current") ? "/memory.current"
                                                                              : "/memory.usage_in_bytes");
  static std::map<std::string, MemoryCgroup::Ended> plain_runs;
  if (!plain_runs.contains(model)) {
    plain_runs[model] = unlimited.run({"--child", model, "plain"});
  }
  const auto& plain = plain_runs[model];
  ASSERT_EQ(plain.code, 0) << plain.output;
  const auto planned = limited.run({"--child", model, way, usage_file});
  const int64_t peak = limited.peak_bytes();
  ASSERT_FALSE(planned.killed) << planned.output;
  ASSERT_EQ(planned.code, 0) << planned.output;
  std::map<std::string, int64_t> expected = numbers_in(plain.output);
  std::map<std::string, int64_t> found = numbers_in(planned.output);
  for (int64_t i = 0; i < kSteps; ++i) {
    EXPECT_EQ(found["loss" + std::to_string(i)], expected["loss" + std::to_string(i)]) << i;
  }
  EXPECT_EQ(found["state"], expected["state"]);
  EXPECT_GE(found["plain_peak"], 3 * limit);
  EXPECT_GE(found["planned"], 3);
  EXPECT_GT(found["spilled"], limit);
  EXPECT_EQ(found["too_little_left"], 0) << planned.output;  // what is taken is remat's own arena
  // What the group used before there was a model is not the step's; of the budget, not of the limit, 3 % are allowed.
  // A step that finds its budget itself records within what is left at first, and finds less once it has recorded: what
  // the recording takes is no longer left. The arena, all of it touched, is still there at the end.
  const int64_t most = std::max(found["budget"], way == "auto" ? found["left_at_first"] : 0);
  EXPECT_LE(static_cast<double>(peak - found["usage"]), 1.03 * static_cast<double>(most));
  EXPECT_LE(static_cast<double>(found["at_end"] - found["usage"]), 1.03 * static_cast<double>(found["budget"]));
  EXPECT_GT(found["at_end"] - found["usage"], found["budget"] / 2);
  EXPECT_GT(peak - found["usage"], found["budget"] / 2);  // the counter counts
  EXPECT_LE(found["budget"], limit - found["usage"]);
  EXPECT_GT(found["budget"], (limit - found["usage"]) / 4 * 3);
  RecordProperty("group_peak_bytes", std::to_string(peak));
  std::cout << model << ": limit " << limit << ", group peak " << peak << ", before " << found["usage"]
            << ", budget " << found["budget"] << ", reserved " << found["reserved"] << ", plain "
            << found["plain_peak"] << "\n";
  EXPECT_EQ(limited.oom_kills(), 0);
  if (way == "step") {
    const MemoryCgroup same(limit);
    EXPECT_TRUE(same.run({"--child", model, "plain"}).killed);
    EXPECT_GE(same.oom_kills(), 1);  // by the group's limit, not by anybody else
  }
}

TEST(MemoryLimit, ThatIsLoweredDuringAStepMakesTheNextOnesUseLess) {
  const MemoryCgroup group(int64_t{2} << 30);
  if (!group.made()) {
    REMAT_SKIP("a memory cgroup cannot be made here: " << group.why_not());
  }
  const bool second = std::ifstream(group.folder() + "/memory.max").good();
  const auto ended = group.run({"--lowered", group.folder() + (second ? "/memory.max" : "/memory.limit_in_bytes")});
  ASSERT_EQ(ended.code, 0) << (ended.killed ? "killed\n" : "") << ended.output;
  std::map<std::string, int64_t> found = numbers_in(ended.output);
  EXPECT_GT(found["lowered_to"], 0);
  EXPECT_LT(found["budget"], 700 * MiB) << ended.output;
  EXPECT_EQ(found["recorded"], 1);
  EXPECT_GE(found["notices"], 1);
  EXPECT_NE(ended.output.find("memory is short"), std::string::npos) << ended.output;
  const MemoryCgroup unlimited(int64_t{20} << 30);
  const auto plain = unlimited.run({"--child", "gpt", "losses"});
  std::map<std::string, int64_t> expected = numbers_in(plain.output);
  for (int64_t i = 0; i < kStepsLowered; ++i) {
    EXPECT_EQ(found["loss" + std::to_string(i)], expected["loss" + std::to_string(i)]) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Training, MemoryLimits,
                         ::testing::Values(std::pair("gpt", "step"), std::pair("resnet", "step"),
                                           std::pair("gpt", "auto")),
                         [](const auto& instance) { return instance.param.first + "_" + instance.param.second; });

}  // namespace
}  // namespace remat::testing

int main(int argc, char** argv) {
  const std::string mode = argc >= 3 ? argv[1] : "";
  if (mode == "--child" || mode == "--lowered") {
    try {
      return mode == "--child" ? remat::testing::run_child({argv + 2, argv + argc})
                               : remat::testing::run_lowered_child(argv[2]);
    } catch (const std::exception& error) {
      std::cerr << error.what() << "\n";
      return 1;
    }
  }
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
