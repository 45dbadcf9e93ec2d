// SPDX-License-Identifier: Apache-2.0
#include "remat/core/terms.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "remat/core/graph_text.h"

namespace remat::detail {
namespace terms_test {

TEST(Terms, EqualTermsHaveEqualNumbersAndOthersDoNot) {
  Terms terms;
  const Term x = terms.external(0);
  const Term w = terms.external(1);
  const Term state = terms.generator();
  const std::vector<Term> xw = {x, w};
  const std::vector<Term> wx = {w, x};
  const Term applied = terms.applied(0, xw);
  EXPECT_EQ(applied, terms.applied(0, xw));
  EXPECT_EQ(terms.created(applied, 1), terms.created(terms.applied(0, xw), 1));
  const std::vector<Term> all = {x,
                                 w,
                                 state,
                                 applied,
                                 terms.applied(0, wx),               // other inputs
                                 terms.applied(1, xw),               // another op
                                 terms.created(applied, 0),
                                 terms.created(applied, 1),          // another result
                                 terms.updated(applied, 0),          // not what it creates
                                 terms.affected(applied, 0, x),
                                 terms.affected(applied, 0, w),      // from another content
                                 terms.advanced(0, state),
                                 terms.advanced(1, state)};
  EXPECT_EQ(std::set<Term>(all.begin(), all.end()).size(), all.size());
}

constexpr std::string_view kGraph = R"(remat-graph 1
external x 4 input
external stat 1 buffer
op f forward kind=k time_ns=1 reads=x creates=a:8
op relu_ forward kind=k time_ns=1 updates=a
op drop forward kind=k time_ns=1 reads=a creates=b:8 random
op drop2 forward kind=k time_ns=1 reads=a creates=c:8 random
op norm forward kind=k time_ns=1 reads=c creates=d:8 effects=stat
output d
)";

TEST(Terms, TheGivenOrderIsFollowedByVersionGeneratorAndEffect) {
  const Graph graph = parse_graph(kGraph);
  Terms terms;
  const Truth truth = run_given_order(graph, terms);
  const Term x = terms.external(0);
  const Term a0 = terms.created(terms.applied(0, std::vector<Term>{x}), 0);
  const Term a1 = terms.updated(terms.applied(1, std::vector<Term>{a0}), 0);
  const Term first = terms.generator();
  const Term second = terms.advanced(2, first);
  EXPECT_EQ(truth.inputs[1], std::vector<Term>{a0});
  EXPECT_EQ(truth.inputs[2], std::vector<Term>{a1});  // the version after the update
  const Term b = terms.created(terms.applied(2, std::vector<Term>{a1, first}), 0);
  const Term c = terms.created(terms.applied(3, std::vector<Term>{a1, second}), 0);
  EXPECT_EQ(truth.last[index(graph.ops[2].creates[0])], b);
  EXPECT_EQ(truth.last[index(graph.ops[3].creates[0])], c);
  EXPECT_EQ(truth.generator, terms.advanced(3, second));
  const Term stat = terms.external(1);
  EXPECT_EQ(truth.effects[4], std::vector<Term>{stat});
  EXPECT_EQ(truth.last[1], terms.affected(terms.applied(4, std::vector<Term>{c}), 0, stat));
}

}  // namespace terms_test
}  // namespace remat::detail
