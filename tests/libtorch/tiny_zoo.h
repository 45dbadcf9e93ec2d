// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "remat/models/zoo.h"
#include "tests/libtorch/training.h"

namespace remat::testing {

// Every model of the zoo, for tests that run on each.
std::vector<std::string> zoo_names();

// A size at which a step of any zoo model takes milliseconds and every kind of layer is there.
models::ModelSize tiny_size(const models::ZooEntry& entry);

// A model of the zoo at its tiny size, with so many batches. The same seed, the same model.
Problem zoo_problem(const std::string& name, int64_t steps = 3);

}  // namespace remat::testing
