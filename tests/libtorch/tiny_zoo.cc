// SPDX-License-Identifier: Apache-2.0
#include "tests/libtorch/tiny_zoo.h"

namespace remat::testing {

std::vector<std::string> zoo_names() {
  std::vector<std::string> names;
  for (const models::ZooEntry& entry : models::zoo()) names.push_back(entry.name);
  return names;
}

models::ModelSize tiny_size(const models::ZooEntry& entry) {
  const auto if_it_has_one = [](int64_t standard, int64_t tiny) {
    return standard == 0 ? 0 : tiny;
  };
  const models::ModelSize& standard = entry.defaults;
  return {.batch = if_it_has_one(standard.batch, 2),
          .image = if_it_has_one(standard.image, 32),
          .sequence = if_it_has_one(standard.sequence, 12),
          .layers = if_it_has_one(standard.layers, 2),
          .width = if_it_has_one(standard.width, 16)};
}

Problem zoo_problem(const std::string& name, int64_t steps) {
  const models::ZooEntry& entry = models::find_model(name);
  torch::manual_seed(11);
  const models::TrainingTask task = entry.make(tiny_size(entry));
  Problem problem = module_problem(*task.module, task.loss, {});
  for (int64_t seed = 0; seed < steps; ++seed) {
    problem.batches.push_back(task.make_batch(seed));
  }
  return problem;
}

}  // namespace remat::testing
