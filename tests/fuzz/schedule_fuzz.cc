// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "remat/core/error.h"
#include "remat/core/graph_text.h"
#include "remat/core/plan.h"
#include "remat/core/schedule_text.h"
#include "remat/core/simulate.h"
#include "remat/core/verify.h"
#include "tests/testing/moving_step.h"
#include "tests/testing/small_step.h"

namespace {

using namespace remat;

void read(std::string_view bytes, const Graph& graph) {
  Schedule schedule;
  try {
    schedule = parse_schedule(bytes, graph);
  } catch (const Error&) {
    return;
  }
  const std::string text = print_schedule(schedule, graph);
  if (parse_schedule(text, graph) != schedule) std::abort();
  const int64_t peak_bytes = simulate_peak(graph, schedule).bytes;
  if (verify(graph, schedule, kNoBudget)) return;
  if (verify(graph, schedule, peak_bytes)) std::abort();
  if (!verify(graph, schedule, peak_bytes - 1)) std::abort();
}

}  // namespace

// Any bytes are a schedule of the small step, or of the one with every kind of move, or an Error. A schedule comes
// back from its text unchanged, verify has an answer for it, and where the answer is yes simulate agrees on the
// peak.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const Graph small = parse_graph(testing::kSmallStepGraph);
  static const Graph moving = parse_graph(testing::kMovingStepGraph);
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  read(bytes, small);
  read(bytes, moving);
  return 0;
}
