// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "remat/core/error.h"
#include "remat/core/graph_text.h"
#include "remat/core/plan.h"
#include "remat/core/schedule_text.h"
#include "remat/core/simulate.h"
#include "remat/core/verify.h"
#include "tests/testing/small_step.h"

// Any bytes are a schedule of the small step or an Error. A schedule comes back from its text
// unchanged, verify has an answer for it, and where the answer is yes simulate agrees on the peak.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace remat;
  static const Graph graph = parse_graph(testing::kSmallStepGraph);
  Schedule schedule;
  try {
    schedule = parse_schedule({reinterpret_cast<const char*>(data), size}, graph);
  } catch (const Error&) {
    return 0;
  }
  const std::string text = print_schedule(schedule, graph);
  if (parse_schedule(text, graph) != schedule) std::abort();
  const int64_t peak_bytes = simulate_peak(graph, schedule).bytes;
  if (verify(graph, schedule, kNoBudget)) return 0;
  if (verify(graph, schedule, peak_bytes)) std::abort();
  if (!verify(graph, schedule, peak_bytes - 1)) std::abort();
  return 0;
}
