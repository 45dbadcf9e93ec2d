// SPDX-License-Identifier: Apache-2.0
#include "remat/core/verify_copies.h"

#include <gtest/gtest.h>

#include <string>

#include "remat/core/graph_text.h"
#include "remat/core/schedule_text.h"

namespace remat::detail {
namespace verify_copies_test {

using State = Copies::State;

// An external of 4 bytes, a value of 8, its packed form of 1, an output of 16 that is made twice.
const Graph& graph() {
  static const Graph made = parse_graph(R"(remat-graph 1
external x 4 input
op first forward kind=k time_ns=1 reads=x creates=a:8
op last forward kind=k time_ns=1 reads=a creates=y:16
packed a rule=two_values bytes=1 pack_ns=1 unpack_ns=1
output y
)");
  return made;
}

const Schedule& schedule() {
  static const Schedule made = parse_schedule(R"(remat-schedule 1
run first reads=x creates=a
run last reads=a creates=y
pack a reads=a creates=a~
free a
recompute first reads=x creates=a#1
recompute last reads=a#1 creates=y#1
free y
free a#1
free a~
)", graph());
  return made;
}

InstanceId instance(std::string_view name) {
  for (size_t i = 0; i < schedule().instances.size(); ++i) {
    if (instance_name(graph(), schedule().instances[i]) == name) return static_cast<InstanceId>(i);
  }
  throw std::logic_error("no instance " + std::string(name));
}

TEST(Copies, CountTheBytesOfWhatIsThere) {
  Copies copies(graph(), schedule());
  EXPECT_EQ(copies.resident_bytes(), 0);
  copies.begin(instance("x"), 1);
  copies.begin(instance("a"), 2);
  EXPECT_EQ(copies.resident_bytes(), 12);
  copies.begin(instance("a#1"), 2);
  EXPECT_EQ(copies.resident_bytes(), 20);
  EXPECT_EQ(copies.resident_of(schedule().instances[index(instance("a"))].storage), 2);
  copies.end(instance("a"), State::taken);
  EXPECT_EQ(copies.resident_bytes(), 12);
  EXPECT_EQ(copies[instance("a")].state, State::taken);
  EXPECT_EQ(copies[instance("a#1")].state, State::resident);
  EXPECT_EQ(copies[instance("y")].state, State::not_created);
}

TEST(Copies, AFormStandsForTheValueInIt) {
  Copies copies(graph(), schedule());
  copies.begin(instance("a"), 2);
  copies.begin(instance("a~"), 3, 2);
  EXPECT_EQ(copies.value_in(instance("a")), 2);
  EXPECT_EQ(copies.value_in(instance("a~")), 2);
  EXPECT_EQ(copies[instance("a~")].content, 3);
}

// The output is made at steps 1 and 5.
TEST(Copies, AnOutputIsLostWithItsOnlyCopyOnceNoneIsMadeAnyMore) {
  Copies copies(graph(), schedule());
  copies.begin(instance("y"), 2);
  EXPECT_FALSE(copies.last_of_output(instance("y"), 4));
  EXPECT_TRUE(copies.last_of_output(instance("y"), 5));
  copies.begin(instance("y#1"), 2);
  EXPECT_FALSE(copies.last_of_output(instance("y"), 6));
  copies.end(instance("y"), State::freed);
  EXPECT_TRUE(copies.last_of_output(instance("y#1"), 7));
  copies.begin(instance("a"), 1);
  EXPECT_FALSE(copies.last_of_output(instance("a"), 8)) << "it is no output";
}

}  // namespace verify_copies_test
}  // namespace remat::detail
