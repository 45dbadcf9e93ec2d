// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "remat/core/graph.h"
#include "remat/core/schedule.h"

namespace remat {

// The text form. The bindings are written out, so that a checker need not infer them:
//
//     remat-schedule 1
//     run conv1 reads=x,w1 creates=a1
//     run relu1 reads=a1 creates=a2 reuse=a2<a1
//     recompute conv1 reads=x,w1 creates=a1#1
//     free a2
//
// parse_schedule(print_schedule(s, g), g) == s for every schedule that rewrite or parse_schedule
// makes. The parser demands known names, operands that fit the op and reuse= between the step's own
// creates and reads; whether the schedule is *right* is for verify to say. Throws Error with the line.
std::string print_schedule(const Schedule& schedule, const Graph& graph);
Schedule parse_schedule(std::string_view text, const Graph& graph);

}  // namespace remat
