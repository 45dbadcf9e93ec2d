// SPDX-License-Identifier: Apache-2.0
//
// What the operating system counts while steps run. Each case runs in a process of its own, this
// program with --child, which prints its numbers by name.
#include <gtest/gtest.h>
#include <malloc.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <sstream>

#include "remat/libtorch/step.h"
#include "remat/libtorch/trace.h"
#include "tests/libtorch/testing.h"

namespace remat::testing {
namespace {

using at::Tensor;
namespace nn = torch::nn;

int64_t resident_bytes(const std::string& field) {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    if (word == field) {
      int64_t kib = 0;
      status >> kib;
      return kib * 1024;
    }
  }
  throw std::runtime_error("no " + field + " in /proc/self/status");
}

int64_t resident_now() {
  malloc_trim(0);
  return resident_bytes("VmRSS:");
}

void reset_resident_peak() {
  std::ofstream clear("/proc/self/clear_refs");
  clear << "5" << std::flush;
  if (!clear) {
    throw std::runtime_error("/proc/self/clear_refs cannot be written");
  }
}

// Growth of what is resident, from when it is made to the peak. Pages of libraries' code are not in
// it: they come from files as code is first run, and are shared.
class Growth {
 public:
  int64_t peak_bytes() const { return beyond("VmHWM:"); }
  int64_t now_bytes() const { return beyond("VmRSS:"); }

 private:
  int64_t beyond(const std::string& field) const {
    const int64_t code = resident_bytes("RssFile:") - file_before_;
    return resident_bytes(field) - resident_before_ - code;
  }
  int64_t resident_before_ = resident_now();
  int64_t file_before_ = resident_bytes("RssFile:");
};

// A perceptron with parameters of 32 MiB. With 256 rows a layer keeps nine tensors of 1 MiB for
// backward: 72 MiB in all; with 512 rows twice as much.
constexpr int64_t kLayers = 8;
constexpr int64_t kLayerWidth = 1024;

struct Training {
  enum class Kind { update_inside, accumulation, two_shapes };

  explicit Training(Kind of_kind, int64_t of_width = kLayerWidth) : kind(of_kind), width(of_width) {
    torch::manual_seed(3);
    std::vector<Tensor> parameters;
    for (int64_t i = 0; i < kLayers; ++i) {
      layers.emplace_back(width, width);
      parameters.push_back(layers.back()->weight);
      parameters.push_back(layers.back()->bias);
    }
    const double momentum = kind == Kind::update_inside ? 0.9 : 0;
    const auto options = torch::optim::SGDOptions(0.01).momentum(momentum);
    optimizer = std::make_unique<torch::optim::SGD>(parameters, options);
  }

  Batch next_batch() {
    ++step;
    const int64_t rows = kind != Kind::two_shapes ? 256 : step % 2 == 0 ? 384 : 512;
    return {torch::randn({rows, width})};
  }

  Batch operator()(const Batch& batch) {
    const bool accumulates = kind == Kind::accumulation;
    if (accumulates && step % 2 == 0) {
      optimizer->zero_grad();
    }
    Tensor x = batch[0];
    for (nn::Linear& layer : layers) {
      x = layer->forward(x);
      for (int i = 0; i < 2; ++i) {
        x = torch::gelu(x) * torch::sigmoid(x) + x;
      }
    }
    const Tensor loss = x.pow(2).mean();
    loss.backward();
    if (!accumulates || step % 2 == 1) {
      optimizer->step();
    }
    if (!accumulates) {
      optimizer->zero_grad();  // so that gradients need not outlive their update
    }
    return {loss.detach()};
  }

  Kind kind;
  int64_t width;
  std::vector<nn::Linear> layers;
  std::unique_ptr<torch::optim::SGD> optimizer;
  int64_t step = -1;
};

// On a busy machine a step may take a second and be planned beside the ones that are measured here: a planner's memory
// is not the step's.
constexpr double kNever = 1e9;
constexpr int kCycle = 2;  // steps in which everything comes that a training does

int64_t plain_growth(Training::Kind kind) {
  const Growth growth;
  reset_resident_peak();
  Training training(kind);
  for (int i = 0; i < kCycle; ++i) {
    training(training.next_batch());
  }
  return growth.peak_bytes();
}

struct Planned {
  int64_t growth_bytes = 0;     // at the peak of steps that find their plans
  int64_t unplanned_steps = 0;  // among them
};

Planned planned_growth(Training::Kind kind, int64_t width, int64_t budget) {
  const Growth growth;
  Training training(kind, width);
  Step step([&](const Batch& batch) { return training(batch); },
            {.budget_bytes = budget,
             .plan_seconds = 0.5,
             .measure_seconds = 0,
             .background_plan_seconds = kNever});
  const auto run_cycles = [&](int cycles) {
    for (int i = 0; i < cycles * kCycle; ++i) {
      step(training.next_batch());
    }
  };
  run_cycles(3);  // more than one: optimizer state is there from the second on
  const int64_t plain_steps = step.report().plain_steps;
  malloc_trim(0);
  reset_resident_peak();
  run_cycles(2);
  return {growth.peak_bytes(), step.report().plain_steps - plain_steps};
}

void run_budget_child(Training::Kind kind) {
  // Threads, the buffers of matrix products and the code of planners are there to stay.
  plain_growth(kind);
  planned_growth(kind, 16, MiB);
  const int64_t plain = plain_growth(kind);
  const int64_t budget = plain / 4 * 3;
  const Planned planned = planned_growth(kind, kLayerWidth, budget);
  std::cout << "plain_growth " << plain << "\nbudget " << budget << "\ngrowth "
            << planned.growth_bytes << "\nunplanned " << planned.unplanned_steps << "\n";
}

// Steps of six courses: three shapes of batches, and a branch.
void run_flat_child(int max_variants, int64_t first_look, int64_t last_look) {
  torch::manual_seed(3);
  nn::Linear first(8, 8), last(8, 2);
  std::vector<Tensor> parameters = first->parameters();
  for (const Tensor& parameter : last->parameters()) {
    parameters.push_back(parameter);
  }
  torch::optim::Adam optimizer(parameters);
  int64_t number = 0;
  Step step(
      [&](const Batch& batch) -> Batch {
        optimizer.zero_grad();
        Tensor x = torch::tanh(first->forward(batch[0]));
        if (number % 2 == 1) {
          x = torch::dropout(x, 0.5, true);
        }
        const Tensor loss = last->forward(x).pow(2).mean();
        loss.backward();
        optimizer.step();
        return {loss.detach()};
      },
      {.plan_seconds = 0.02, .measure_seconds = 0, .max_variants = max_variants});
  int64_t at_first = 0;
  for (; number < last_look; ++number) {
    if (number == first_look) {
      at_first = resident_now();
    }
    step({torch::randn({4 + 2 * (number % 3), 8})});
  }
  std::cout << "growth " << resident_now() - at_first << "\nvariants " << step.report().variants
            << "\nplanned " << step.report().planned_steps << "\n";
}

// Of a loss, or of what a training has left.
int64_t digest_of(const Tensor& tensor) {
  return static_cast<int64_t>(detail::digest(tensor.const_data_ptr(), tensor.nbytes()) >> 8);
}
int64_t digest_of(const Training& training) {
  int64_t sum = 0;
  for (const nn::Linear& layer : training.layers) {
    sum = sum * 31 + digest_of(layer->weight) * 7 + digest_of(layer->bias);
  }
  return sum;
}

// 100 %, 60 %, 80 %, the least, 100 % of what the step needs that keeps everything, four steps each. What was resident
// at the peak of the last of them, and between two calls, beside the budget; and the bits, beside those of a plain loop.
void run_elastic_child() {
  plain_growth(Training::Kind::update_inside);
  planned_growth(Training::Kind::update_inside, 16, MiB);
  std::vector<int64_t> losses;
  const Growth growth;
  Training training(Training::Kind::update_inside);
  Step step([&](const Batch& batch) { return training(batch); },
            {.budget_bytes = GiB, .plan_seconds = 0.5, .measure_seconds = 0, .background_plan_seconds = kNever});
  const auto run = [&] { losses.push_back(digest_of(step(training.next_batch())[0])); };
  for (int i = 0; i < 3; ++i) {
    run();
  }
  const int64_t whole = step.report().peak_bytes;
  const int64_t least = step.report().floor_bytes + 2 * MiB;
  int number = 0;
  for (const int64_t budget : {whole, whole / 10 * 6, whole / 10 * 8, least, whole}) {
    const double planned_before = step.report().plan_seconds;
    step.set_budget_bytes(budget);
    malloc_trim(0);
    const int64_t between = growth.now_bytes();
    for (int i = 0; i < 4; ++i) {
      if (i == 3) {
        reset_resident_peak();
      }
      run();
    }
    std::cout << "budget" << number << " " << budget << "\ngrowth" << number << " " << growth.peak_bytes()
              << "\nbetween" << number << " " << between << "\nreserved" << number << " "
              << step.report().peak_bytes << "\nplanned" << number << " "
              << (step.report().plan_seconds > planned_before ? 1 : 0) << "\n";
    ++number;
  }
  std::cout << "plain " << step.report().plain_steps << "\n";
  Training same(Training::Kind::update_inside);
  int64_t equal = 0;
  for (const int64_t loss : losses) {
    equal += digest_of(same(same.next_batch())[0]) == loss ? 1 : 0;
  }
  std::cout << "losses " << losses.size() << "\nequal_losses " << equal << "\nequal_state "
            << (digest_of(same) == digest_of(training) ? 1 : 0) << "\n";
}

int run_child(const std::string& name) {
  // Freed memory goes back to the system at once, whatever was allocated before.
  mallopt(M_MMAP_THRESHOLD, 128 * 1024);
  if (name == "update_inside") {
    run_budget_child(Training::Kind::update_inside);
  } else if (name == "accumulation") {
    run_budget_child(Training::Kind::accumulation);
  } else if (name == "two_shapes") {
    run_budget_child(Training::Kind::two_shapes);
  } else if (name == "elastic") {
    run_elastic_child();
  } else if (name == "flat") {
    run_flat_child(8, 100, 1000);
  } else if (name == "flat_beyond_the_limit") {
    run_flat_child(3, 60, 300);
  } else {
    std::cerr << "no child is called " << name << "\n";
    return 1;
  }
  return 0;
}

// The numbers that a child prints.
std::map<std::string, int64_t> numbers_of_child(const std::string& name) {
  const std::string program = std::filesystem::read_symlink("/proc/self/exe").string();
  FILE* const pipe = popen(("'" + program + "' --child " + name).c_str(), "r");
  std::string text;
  char part[256];
  while (pipe != nullptr && std::fgets(part, sizeof(part), pipe) != nullptr) {
    text += part;
  }
  EXPECT_TRUE(pipe != nullptr && pclose(pipe) == 0) << text;
  std::map<std::string, int64_t> numbers;
  std::istringstream in(text);
  int64_t number = 0;
  for (std::string word; in >> word >> number;) {
    numbers[word] = number;
  }
  return numbers;
}

class StepMemory : public ::testing::TestWithParam<std::string> {};

TEST_P(StepMemory, ResidentGrowthStaysWithinTheBudget) {
  const std::map<std::string, int64_t> child = numbers_of_child(GetParam());
  ASSERT_TRUE(child.contains("unplanned"));
  const int64_t budget = child.at("budget");
  EXPECT_GT(child.at("plain_growth"), 80 * MiB);
  EXPECT_LE(child.at("growth"), budget + budget / 50) << "budget " << budget;
  EXPECT_GT(child.at("growth"), budget / 2);  // the peak was reset and reached again
  EXPECT_EQ(child.at("unplanned"), 0);
}

INSTANTIATE_TEST_SUITE_P(Training, StepMemory,
                         ::testing::Values("update_inside", "accumulation", "two_shapes"),
                         [](const auto& instance) { return instance.param; });

TEST(StepMemory, ResidentBytesFollowABudgetThatChanges) {
  std::map<std::string, int64_t> child = numbers_of_child("elastic");
  ASSERT_TRUE(child.contains("equal_state"));
  for (int i = 0; i < 5; ++i) {
    const auto number = [&](const std::string& name) {
      return static_cast<double>(child.at(name + std::to_string(i)));
    };
    const double budget = number("budget");
    EXPECT_LE(number("growth"), 1.05 * budget) << i;
    EXPECT_GE(number("growth"), 0.95 * budget) << i;  // it grows back, too
    EXPECT_LE(number("between"), 1.05 * budget) << i;  // pages go back at once, not with the next step
    EXPECT_LE(number("reserved"), budget) << i;
  }
  EXPECT_LT(child.at("budget3"), child.at("budget0") * 3 / 4);
  EXPECT_EQ(child.at("planned3"), 1);
  EXPECT_EQ(child.at("planned4"), 0);  // there is a plan from before
  EXPECT_EQ(child.at("losses"), 23);
  EXPECT_EQ(child.at("equal_losses"), 23);
  EXPECT_EQ(child.at("equal_state"), 1);
  EXPECT_EQ(child.at("plain"), 2);  // recorded once, and once more with the optimizer's state
}

TEST(StepMemory, IsFlatOverManyStepsOfSeveralVariants) {
  const std::map<std::string, int64_t> child = numbers_of_child("flat");
  ASSERT_TRUE(child.contains("planned"));
  EXPECT_LT(child.at("growth"), 2 * MiB);
  EXPECT_GE(child.at("variants"), 6);
  EXPECT_GT(child.at("planned"), 900);
}

TEST(StepMemory, IsFlatWhereVariantsAreForgotten) {
  const std::map<std::string, int64_t> child = numbers_of_child("flat_beyond_the_limit");
  ASSERT_TRUE(child.contains("variants"));
  EXPECT_LT(child.at("growth"), 2 * MiB);
  EXPECT_LE(child.at("variants"), 3);
}

}  // namespace
}  // namespace remat::testing

int main(int argc, char** argv) {
  if (argc == 3 && std::string(argv[1]) == "--child") {
    try {
      return remat::testing::run_child(argv[2]);
    } catch (const std::exception& error) {
      std::cerr << error.what() << "\n";
      return 1;
    }
  }
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
