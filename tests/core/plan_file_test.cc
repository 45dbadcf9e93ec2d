// SPDX-License-Identifier: Apache-2.0
#include "remat/core/plan_file.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "remat/core/error.h"
#include "remat/core/graph_text.h"
#include "remat/core/moves.h"
#include "remat/core/rewrite.h"
#include "remat/core/schedule_text.h"
#include "tests/testing/moving_step.h"
#include "tests/testing/property_count.h"
#include "tests/testing/random_graph.h"
#include "tests/testing/random_moves.h"
#include "tests/testing/random_order.h"
#include "tests/testing/replaced.h"
#include "tests/testing/small_step.h"

namespace remat {
namespace plan_file_test {

using testing::replaced;

SavedCourse course_of(Graph graph, int64_t budget_bytes, double seconds = 0.05) {
  SavedCourse course;
  course.fingerprint = 0x0123456789abcdef;
  course.threads = 2;
  course.inputs = {"input0:float[8,3,32,32]"};
  course.budget_bytes = budget_bytes;
  course.plan = plan(graph, {.budget_bytes = budget_bytes, .placed = true, .time_limit_seconds = seconds});
  course.plan.floor = floor(graph, course.plan);
  course.schedule = rewrite(graph, course.plan.order);
  course.graph = std::move(graph);
  return course;
}

// Externals are 9 bytes; in the arena everything is rounded up to 64, and five things fit.
PlanFile small_file() {
  const Graph graph = parse_graph(testing::kSmallStepGraph);
  return {.library = std::string(library_version()),
          .libtorch = "2.13.0",
          .courses = {course_of(graph, 9 + 5 * 64), course_of(graph, kNoBudget)}};
}

std::string error_of(const std::string& text) {
  try {
    parse_plan_file(text);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(PlanFile, ParsesWhatItPrints) {
  const PlanFile file = small_file();
  const std::string text = print_plan_file(file);
  const PlanFile read = parse_plan_file(text);
  EXPECT_EQ(print_plan_file(read), text);
  ASSERT_EQ(read.courses.size(), 2u);
  const SavedCourse& course = read.courses[0];
  EXPECT_EQ(read.libtorch, "2.13.0");
  EXPECT_EQ(course.fingerprint, 0x0123456789abcdef);
  EXPECT_EQ(course.threads, 2);
  EXPECT_EQ(course.inputs, file.courses[0].inputs);
  EXPECT_EQ(course.budget_bytes, 9 + 5 * 64);
  EXPECT_EQ(course.graph, file.courses[0].graph);
  EXPECT_EQ(course.schedule, file.courses[0].schedule);
  EXPECT_EQ(course.plan.order, file.courses[0].plan.order);
  EXPECT_EQ(course.plan.strategy, file.courses[0].plan.strategy);
  EXPECT_EQ(course.plan.peak_bytes, file.courses[0].plan.peak_bytes);
  EXPECT_EQ(course.plan.time_ns, file.courses[0].plan.time_ns);
  EXPECT_TRUE(course.plan.feasible);
  EXPECT_LE(course.reserved_bytes(), course.budget_bytes);
  EXPECT_EQ(read.courses[1].budget_bytes, kNoBudget);
}

TEST(PlanFile, ParsesWhatItPrintsOnRandomGraphs) {
  const uint64_t graphs = testing::property_graphs(500);
  for (uint64_t seed = 0; seed < graphs; ++seed) {
    std::mt19937_64 generator(seed);
    SavedCourse course;
    course.graph = testing::random_graph(generator);
    course.plan.order = testing::random_order(generator, course.graph, 20);
    course.plan.strategy = "search";
    course.schedule = rewrite(course.graph, course.plan.order);
    course.plan.placement = place(course.graph, course.schedule, {.time_limit_seconds = 0.001});
    const std::string text = print_plan_file({"0.1.0", "none", {course}});
    ASSERT_EQ(print_plan_file(parse_plan_file(text)), text) << "seed " << seed;
  }
}

// The moving step, by its schedule.
PlanFile moving_file() {
  SavedCourse course;
  course.graph = parse_graph(testing::kMovingStepGraph);
  course.schedule = parse_schedule(testing::kMovingStepSchedule, course.graph);
  course.plan.order = order_of(course.graph, course.schedule);
  course.plan.strategy = "search";
  course.plan.placement = place(course.graph, course.schedule);
  return {"0.1.0", "none", {course}};
}

TEST(PlanFile, ParsesTheMovesThatItPrints) {
  const PlanFile file = moving_file();
  const std::string text = print_plan_file(file);
  EXPECT_NE(text.find("arena 640 live 640 optimal\nchannel_bytes 128\nat m "), std::string::npos) << text;
  EXPECT_NE(text.find("at a^ 0\n"), std::string::npos) << text;
  const PlanFile read = parse_plan_file(text);
  EXPECT_EQ(print_plan_file(read), text);
  const SavedCourse& course = read.courses[0];
  EXPECT_EQ(course.graph, file.courses[0].graph);
  EXPECT_EQ(course.schedule, file.courses[0].schedule);
  EXPECT_EQ(course.plan.order, file.courses[0].plan.order);
  EXPECT_EQ(course.plan.peak_bytes, testing::kMovingStepPeakBytes);
  EXPECT_EQ(course.plan.time_ns, 242);  // simulate_test.cc has the sum
  EXPECT_EQ(course.plan.placement->channel_bytes, 128);
  EXPECT_EQ(course.plan.placement->instance_offset, file.courses[0].plan.placement->instance_offset);
}

TEST(PlanFile, ParsesTheMovesThatItPrintsOnRandomGraphs) {
  const uint64_t graphs = testing::property_graphs(300);
  uint64_t transfers = 0;
  for (uint64_t seed = 0; seed < graphs; ++seed) {
    std::mt19937_64 generator(seed);
    SavedCourse course;
    course.graph = testing::random_graph(generator);
    testing::add_random_moves(generator, course.graph);
    const std::vector<OpId> order = testing::with_random_moves(
        generator, course.graph, testing::random_order(generator, course.graph, 10), 40);
    course.schedule = rewrite(course.graph, order);
    course.plan.order = order_of(course.graph, course.schedule);
    course.plan.strategy = "search";
    course.plan.placement = place(course.graph, course.schedule, {.time_limit_seconds = 0.001});
    const std::string text = print_plan_file({"0.1.0", "none", {course}});
    const PlanFile read = parse_plan_file(text);
    ASSERT_EQ(print_plan_file(read), text) << "seed " << seed;
    ASSERT_EQ(read.courses[0].plan.order, course.plan.order) << "seed " << seed;
    transfers += course.plan.placement->channel_bytes > 0;
  }
  EXPECT_GT(transfers, graphs / 4);
}

TEST(PlanFile, FlippedBitsAreRefused) {
  const std::string text = print_plan_file(small_file());
  for (size_t i = 0; i < text.size(); ++i) {
    std::string damaged = text;
    damaged[i] = static_cast<char>(damaged[i] ^ (1 << (i % 8)));
    ASSERT_NE(error_of(damaged), "no error") << "byte " << i;
  }
}

TEST(PlanFile, EveryTruncationIsRefused) {
  const std::string text = print_plan_file(small_file());
  for (size_t size = 0; size < text.size(); ++size) {
    ASSERT_NE(error_of(text.substr(0, size)), "no error") << size << " bytes";
  }
}

// The text without its checksum, for what is wrong with a file whose checksum is right.
std::string unsigned_text() {
  PlanFile file = small_file();
  file.courses.pop_back();
  const std::string text = print_plan_file(file);
  return text.substr(0, text.rfind("checksum"));
}

std::string line_of(const std::string& text, const std::string& start) {
  const size_t at = text.find("\n" + start) + 1;
  return text.substr(at, text.find('\n', at) - at + 1);
}

std::string without_line(const std::string& text, const std::string& start) {
  return replaced(text, line_of(text, start), "");
}
std::string with_line(const std::string& text, const std::string& start, const std::string& line) {
  return replaced(text, line_of(text, start), line + "\n");
}
std::string doubled(const std::string& text, const std::string& start) {
  return replaced(text, line_of(text, start), line_of(text, start) + line_of(text, start));
}

struct Damage {
  std::string name;
  std::function<std::string(std::string)> make;
  std::string reason;  // a part of the message
};

// Each is refused for a reason of its own.
const std::vector<Damage>& damages() {
  static const std::vector<Damage> table = {
      {"other format", [](std::string t) { return replaced(t, "remat-plan 1", "remat-plan 2"); },
       "line 1: found 'remat-plan 2'; expected the header"},
      {"no library", [](std::string t) { return without_line(t, "library"); },
       "line 2: found 'libtorch 2.13.0'; expected a line that starts with library"},
      {"library of two words", [](std::string t) { return with_line(t, "library", "library 0.1 beta"); },
       "line 2: 'library' is followed by 2 words; expected 1"},
      {"no course", [](std::string t) { return t.substr(0, t.find("course")); },
       "no course follows; expected one or more"},
      {"fingerprint not a number", [](std::string t) { return with_line(t, "fingerprint", "fingerprint xyz"); },
       "fingerprint is 'xyz'; expected 16 hexadecimal digits"},
      {"negative threads", [](std::string t) { return with_line(t, "threads", "threads -1"); },
       "number of threads is '-1'; expected a whole number, zero or more"},
      {"negative budget", [](std::string t) { return with_line(t, "budget", "budget -5"); },
       "budget is '-5'; expected a whole number, zero or more"},
      {"budget below the peak", [](std::string t) { return with_line(t, "budget", "budget 20"); },
       "the schedule is wrong: over_budget at step"},
      {"budget below the arena",
       [](std::string t) { return with_line(t, "budget", "budget 60"); },
       "externals and the arena need more than the budget of 60 B"},
      {"unknown strategy", [](std::string t) { return with_line(t, "strategy", "strategy luck"); },
       "unknown strategy 'luck'"},
      {"floor of an unknown op", [](std::string t) {
         return with_line(t, "floor", "floor 29 nothing"); },
       "the floor is set by 'nothing', which is no op of the graph"},
      {"no graph", [](std::string t) {
         const size_t begin = t.find("graph\nremat-graph");
         return t.erase(begin, t.find("schedule\nremat-schedule") - begin); },
       "found 'schedule'; expected a line that starts with graph"},
      {"graph twice", [](std::string t) { return replaced(t, "\ngraph\n", "\ngraph\ngraph\n"); },
       "found 'graph'; expected the header 'remat-graph 1'"},
      {"damaged graph", [](std::string t) { return replaced(t, "time_ns=8", "time_ns=-8"); },
       "time_ns is '-8'; expected a whole number"},
      {"graph without an op", [](std::string t) { return without_line(t, "op norm"); },
       "which no earlier line declares or creates"},
      {"no schedule", [](std::string t) {
         const size_t begin = t.find("schedule\nremat-schedule");
         return t.erase(begin, t.find("addresses\n") - begin); },
       "the section has no end; expected a line 'schedule'"},
      {"schedule twice", [](std::string t) {
         const size_t begin = t.find("schedule\nremat-schedule");
         const std::string section = t.substr(begin, t.find("addresses\n") - begin);
         return t.insert(begin, section); },
       "found 'schedule'; expected a line that starts with run, recompute, free, pack"},
      {"schedule of another graph", [](std::string t) { return replaced(t, "run conv ", "run gemm "); },
       "unknown op 'gemm'; expected an op of the graph"},
      {"schedule without an op", [](std::string t) { return without_line(t, "run step"); },
       "the schedule is wrong: op_missing"},
      {"once op recomputed", [](std::string t) {
         return replaced(t, line_of(t, "run log"), line_of(t, "run log") + "recompute log reads=l\n"); },
       "the schedule is wrong: once_recomputed"},
      {"freed too early", [](std::string t) {
         return replaced(t, "run loss ", "free n\nrun loss "); },
       "the schedule is wrong: read_missing"},
      {"freed too late", [](std::string t) {
         return replaced(without_line(t, "free n"), "run reduce", "free n\nrun reduce"); },
       "not the one that rewrite makes of its order"},
      {"no addresses", [](std::string t) {
         const size_t begin = t.find("arena ");
         return t.erase(begin, t.find("end\n") - begin); },
       "found 'end'; expected a line that starts with arena"},
      {"overlapping addresses", [](std::string t) {
         const std::string b = line_of(t, "at b ");
         return with_line(t, "at a ", "at a" + b.substr(4, b.size() - 5)); },
       "the addresses are wrong: "},
      {"address beyond the arena", [](std::string t) { return with_line(t, "at n ", "at n 6400"); },
       "the addresses are wrong: n is at 6400 and ends beyond the arena"},
      {"negative address", [](std::string t) { return with_line(t, "at n ", "at n -64"); },
       "address is '-64'; expected a whole number"},
      {"odd address", [](std::string t) { return with_line(t, "at n ", "at n 7"); },
       "the addresses are wrong: n is at 7; expected a multiple of 64"},
      {"address of nobody", [](std::string t) { return with_line(t, "at n ", "at nobody 0"); },
       "found the address of 'nobody'; expected that of n"},
      {"address missing", [](std::string t) { return without_line(t, "at n "); },
       "found the address of "},
      {"address twice", [](std::string t) { return doubled(t, "at n "); },
       "found the address of 'n'; expected that of "},
      {"workspace missing", [](std::string t) { return without_line(t, "workspace conv "); },
       "expected the address of conv: workspace conv <offset>"},
      {"another arena", [](std::string t) {
         return replaced(with_line(t, "budget", "budget none"), "arena ", "arena 9"); },
       "the addresses are wrong: the arena is 9"},
      {"another load", [](std::string t) { return replaced(t, " live ", " live 9"); },
       "the addresses are wrong: the largest load is said to be 9"},
      {"no end", [](std::string t) { return without_line(t, "end"); },
       "the text ends here; expected more"},
      {"more behind the end", [](std::string t) { return t + "at n 0\n"; },
       "found 'at n 0'; expected a line that starts with course"},
      {"number beyond 64 bits", [](std::string t) {
         return with_line(t, "budget", "budget 99999999999999999999"); },
       "does not fit into 64 bits"},
  };
  return table;
}

TEST(PlanFile, EveryDamageIsRefusedByName) {
  const std::string text = unsigned_text();
  ASSERT_EQ(error_of(with_checksum(text)), "no error");
  for (const Damage& damage : damages()) {
    const std::string damaged = damage.make(text);
    EXPECT_NE(damaged, text) << damage.name;
    const std::string error = error_of(with_checksum(damaged));
    EXPECT_NE(error.find(damage.reason), std::string::npos) << damage.name << ": " << error;
    EXPECT_TRUE(error.starts_with("[")) << damage.name << ": " << error;
    EXPECT_NE(error.find("line "), std::string::npos) << damage.name << ": " << error;
  }
}

const std::vector<Damage>& damages_of_moves() {
  static const std::vector<Damage> table = {
      {"no channel in the graph", [](std::string t) { return without_line(t, "channel write"); },
       "no offload of 'a'; expected a storage that the graph allows it for"},
      {"no packed form in the graph", [](std::string t) { return without_line(t, "packed m"); },
       "no pack of 'm'; expected a storage that the graph allows it for"},
      {"another alignment", [](std::string t) { return replaced(t, "alignment=128", "alignment=256"); },
       "the addresses are wrong: "},
      {"packed when it is gone", [](std::string t) {
         return replaced(without_line(t, "free m"), "pack m ", "free m\npack m "); },
       "the schedule is wrong: read_missing"},
      {"no prefetch", [](std::string t) { return without_line(t, "prefetch a"); },
       "the schedule is wrong: read_missing"},
      {"unpacked when it is gone", [](std::string t) {
         return replaced(without_line(t, "free m~"), "unpack m ", "free m~\nunpack m "); },
       "the schedule is wrong: read_missing"},
      {"written in the middle of frees", [](std::string t) {
         return replaced(without_line(t, "free a\n"), "free r~\n", "free a\nfree r~\n"); },
       "not the one that rewrite makes of its order"},
      {"needless transfer", [](std::string t) {
         t = replaced(t, "free a^\n", "prefetch a reads=a^ creates=a#2\nfree a#2\nfree a^\n");
         return replaced(t, "at a#1 ", "at a#2 0\nat a#1 "); },
       "found the address of 'a#2'; expected that of a#1"},
      {"needless transfer with its address", [](std::string t) {
         t = replaced(t, "free a^\n", "prefetch a reads=a^ creates=a#2\nfree a#2\nfree a^\n");
         return replaced(t, "at g3 ", "at a#2 0\nat g3 "); },
       "not the one that rewrite makes of its order"},
      {"no bytes on the channel", [](std::string t) { return without_line(t, "channel_bytes"); },
       "the channel is said to hold 0 bytes; it holds 128"},
      {"more bytes on the channel", [](std::string t) { return replaced(t, "channel_bytes 128", "channel_bytes 256"); },
       "the channel is said to hold 256 bytes; it holds 128"},
      {"bytes on the channel twice", [](std::string t) { return doubled(t, "channel_bytes"); },
       "expected the address of m: at m <offset>"},
      {"bytes on the channel not a number", [](std::string t) { return replaced(t, "channel_bytes 128", "channel_bytes x"); },
       "bytes on the channel is 'x'; expected a whole number"},
      {"elsewhere on the channel", [](std::string t) { return replaced(t, "at a^ 0", "at a^ 128"); },
       "a^ is at 128 on the channel; expected 0"},
      {"form without an address", [](std::string t) { return without_line(t, "at m~"); },
       "found the address of "},
      {"form of another name", [](std::string t) { return replaced(t, "at m~ ", "at m^ "); },
       "found the address of 'm^'; expected that of m~"},
      {"another version is packed", [](std::string t) {
         t = replaced(without_line(t, "pack r"), "run relu", "pack r reads=r creates=r~\nrun relu");
         return replaced(without_line(t, "at r~"), "at l ", line_of(t, "at r~") + "at l "); },
       "the schedule is wrong: wrong_version"},
  };
  return table;
}

TEST(PlanFile, EveryDamageOfMovesIsRefusedByName) {
  const std::string whole = print_plan_file(moving_file());
  const std::string text = whole.substr(0, whole.rfind("checksum"));
  ASSERT_EQ(error_of(with_checksum(text)), "no error");
  for (const Damage& damage : damages_of_moves()) {
    const std::string damaged = damage.make(text);
    EXPECT_NE(damaged, text) << damage.name;
    const std::string error = error_of(with_checksum(damaged));
    EXPECT_NE(error.find(damage.reason), std::string::npos) << damage.name << ": " << error;
    EXPECT_NE(error.find("line "), std::string::npos) << damage.name << ": " << error;
  }
}

TEST(PlanFile, ErrorsOfTheGraphHaveTheLineOfTheFile) {
  const std::string text = unsigned_text();
  const std::string damaged = replaced(text, "time_ns=8", "time_ns=x");
  const std::string before = damaged.substr(0, damaged.find("time_ns=x"));
  const auto line = std::ranges::count(before, '\n') + 1;
  const std::string expected = "line " + std::to_string(line) + ":";
  EXPECT_NE(error_of(with_checksum(damaged)).find(expected), std::string::npos)
      << error_of(with_checksum(damaged)) << " without " << expected;
}

TEST(PlanFile, ChangedTextIsCalledDamaged) {
  const std::string text = print_plan_file(small_file());
  EXPECT_NE(error_of(replaced(text, "threads 2", "threads 4")).find("the file is damaged, or was changed"),
            std::string::npos);
  EXPECT_NE(error_of(text.substr(0, text.size() / 2)).find("a part of it is missing"), std::string::npos);
}

TEST(PlanFile, GraphDifferenceNamesTheFirst) {
  const Graph graph = parse_graph(testing::kSmallStepGraph);
  const auto changed = [](const std::string& from, const std::string& to) {
    return parse_graph(replaced(std::string(testing::kSmallStepGraph), from, to));
  };
  EXPECT_EQ(graph_difference(graph, graph), "");
  EXPECT_EQ(graph_difference(graph, changed("time_ns=8", "time_ns=80")), "");  // times may differ
  EXPECT_EQ(graph_difference(graph, changed("external x 4", "external x 8")),
            "x has 4 bytes in the plan and 8 here");
  EXPECT_EQ(graph_difference(graph, changed("aten::convolution", "aten::linear")),
            "op 1 is conv (aten::convolution) in one and conv (aten::linear) in the other");
  EXPECT_EQ(graph_difference(graph, changed("workspace=2", "workspace=3")),
            "the workspace of conv has 2 bytes in the plan and 3 here");
  EXPECT_EQ(graph_difference(graph, changed("creates=n:4", "creates=n:5")),
            "n has 4 bytes in the plan and 5 here");
  EXPECT_EQ(graph_difference(graph, changed("output ga\n", "")),
            "ga is made, changed or kept by other ops");
}

// Moves are numbered: a schedule of one graph is none of another that has others. What was measured, times
// and rates, may differ.
TEST(PlanFile, GraphDifferenceKnowsMoves) {
  const Graph graph = parse_graph(testing::kMovingStepGraph);
  const auto changed = [](const std::string& from, const std::string& to) {
    return parse_graph(replaced(std::string(testing::kMovingStepGraph), from, to));
  };
  EXPECT_EQ(graph_difference(graph, graph), "");
  EXPECT_EQ(graph_difference(graph, changed("pack_ns=3 unpack_ns=4", "pack_ns=5 unpack_ns=6")), "");
  EXPECT_EQ(graph_difference(graph, changed("write_bytes_per_s=2000000000", "write_bytes_per_s=2100000000")), "");
  EXPECT_EQ(graph_difference(graph, changed("packed m rule=two_values bytes=2 pack_ns=3 unpack_ns=4\n", "")),
            "the plan has 2 packed forms; here are 1");
  EXPECT_EQ(graph_difference(graph, changed("two_values", "bits")),
            "packed form 0 is m (two_values, 2 bytes) in the plan and m (bits, 2 bytes) here");
  EXPECT_EQ(graph_difference(graph, changed("bytes=2 ", "bytes=3 ")),
            "packed form 0 is m (two_values, 2 bytes) in the plan and m (two_values, 3 bytes) here");
  EXPECT_EQ(graph_difference(graph, changed("unpack_ns=4", "unpack_ns=4 readers=b2")),
            "packed form 0 is m (two_values, 2 bytes) in both, with other readers or without unpacking");
  EXPECT_EQ(graph_difference(graph, changed("pack_ns=2 readers=b5", "pack_ns=2 unpack_ns=1 readers=b5")),
            "packed form 1 is r (sign, 5 bytes) in both, with other readers or without unpacking");
  EXPECT_EQ(graph_difference(graph, changed("alignment=128", "alignment=64")),
            "the channel's alignment is 128 in the plan and 64 here");
  EXPECT_EQ(graph_difference(graph, without_moves(graph)), "the plan has 2 packed forms; here are 0");
  EXPECT_EQ(graph_difference(graph, with_moves(graph, true, false)), "the plan has a channel; here is none");
  EXPECT_EQ(graph_difference(with_moves(graph, true, false), graph), "the plan has no channel; here is one");
  // 40 bytes are written in 20 ns: r, g5 and g3 are not worth it any more.
  EXPECT_EQ(graph_difference(graph, changed("latency_ns=5", "latency_ns=21")),
            "5 storages can be offloaded in the plan and 2 here");
}

}  // namespace plan_file_test
}  // namespace remat
