// SPDX-License-Identifier: Apache-2.0
#include "bench/generator/networks.h"

#include <string>

#include "bench/generator/layers.h"

namespace remat::bench {

Graph mlp(int64_t batch, int64_t width, int64_t depth, const StepEnd& end) {
  Tape tape;
  Tensor x = tape.input("x", {batch, 784});
  const Tensor target = tape.input("target", {batch}, 8);
  for (int64_t i = 0; i < depth; ++i) {
    const std::string number = std::to_string(i);
    x = linear(tape, "fc" + number, x, width);
    x = relu(tape, "relu" + number, x);
  }
  return tape.finish(cross_entropy(tape, linear(tape, "head", x, 10), target), end);
}

}  // namespace remat::bench
