// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "remat/core/graph.h"
#include "remat/core/plan.h"
#include "remat/core/schedule.h"

namespace remat {

// One course of a program (see Step), planned.
struct SavedCourse {
  // A number made from the calls of the program that the graph was recorded from, which core only
  // carries; none where the graph came from a file.
  std::optional<uint64_t> fingerprint;
  int64_t threads = 0;              // that the times were measured with; 0 where they were not measured
  std::vector<std::string> inputs;  // what the batch looks like, a word each: "input0:Float[8,3,32,32]"
  int64_t budget_bytes = kNoBudget;  // that it was planned for
  Graph graph;                       // with times
  Plan plan;                         // feasible, with its placement
  Schedule schedule;                 // rewrite(graph, plan.order)

  // What a step needs that runs by it: externals and the arena.
  int64_t reserved_bytes() const { return graph.external_bytes() + plan.placement->arena_bytes; }
};

// What was found out about a program once, for the processes after this one.
struct PlanFile {
  std::string library;   // library_version() of the process that planned
  std::string libtorch;  // its version; "none" where the graphs came from files
  std::vector<SavedCourse> courses;
};

std::string_view library_version();  // "0.1.0"

// The text form, for people to read and for tools to compare:
//
//     remat-plan 1
//     library 0.1.0
//     libtorch 2.13.0
//     course
//     fingerprint 5f0c2a...            or none
//     threads 2
//     input input0:Float[8,3,32,32]    one for each
//     budget 73400320                  or none
//     strategy search
//     floor 41943040 conv.7            the least peak known and the op that sets it, where known
//     bound 51200000                   of the time in ns, where proven
//     graph
//     remat-graph 1 ...                as in graph_text.h
//     schedule
//     remat-schedule 1 ...             as in schedule_text.h
//     addresses
//     arena 29360128 live 29360128     bytes; the second: the most that is there at once. optimal, where proven
//     channel_bytes 4194304            that offloaded forms take on the channel, where there are any
//     at conv.0 0                      every internal instance, in the schedule's order; of an offloaded form,
//                                      on the channel
//     workspace conv.0 1048576         every run of an op that needs one, in the schedule's order
//     end
//     checksum 9e3779b97f4a7c15        of everything above it
//
// Deterministic. Not kept of a plan: decisions, note and the bound without moves.
std::string print_plan_file(const PlanFile& file);

// Inverse to print_plan_file: print_plan_file(parse_plan_file(text)) == text for every text that it
// printed. Trusts nothing: the checksum, the graph, the schedule (by verify, within the budget) and
// the addresses (by fault_in_addresses) are checked, and that rewrite makes this schedule of its
// order. Throws Error with the line and the reason. Versions and threads are for the reader to judge.
PlanFile parse_plan_file(std::string_view text);

// The text with a last line that is its checksum. For those who write a plan by hand, and for tests.
std::string with_checksum(std::string text);

// Where the graph of a course differs from another, times and rates apart: "a1 has 64 bytes in the plan and
// 128 here", or as program_difference says it, the saved one first. Empty where they are alike, so that a
// schedule of one is a schedule of the other.
std::string graph_difference(const Graph& saved, const Graph& found);

}  // namespace remat
