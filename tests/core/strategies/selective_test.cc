// SPDX-License-Identifier: Apache-2.0

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>

#include "remat/core/graph_text.h"
#include "remat/core/strategies/strategies.h"
#include "tests/testing/plan_fault.h"
#include "tests/testing/random_graph.h"

namespace remat {
namespace selective_test {

std::map<std::string, bool> recomputed(const Graph& graph) {
  std::map<std::string, bool> decided;
  const Plan made = plan_selective(graph, {});
  EXPECT_EQ(testing::plan_fault(graph, made, kNoBudget), "");
  for (const Decision& decision : made.decisions) {
    decided[graph.storage(decision.storage).name] = decision.recomputed;
  }
  return decided;
}

TEST(Selective, KeepsContractionsAndRecomputesWhatIsCheap) {
  const Graph graph = parse_graph(R"(remat-graph 1
external x 8 input
op linear forward kind=aten::linear time_ns=9 reads=x creates=y:8
op gelu forward kind=aten::gelu time_ns=1 reads=y creates=z:8
op out forward kind=aten::linear time_ns=9 reads=z creates=o:8
op loss forward kind=aten::loss time_ns=1 reads=o creates=l:8
op d_out backward kind=aten::mm time_ns=9 reads=l,z creates=d:8
op d_gelu backward kind=aten::gelu_backward time_ns=1 reads=d,y creates=e:8
output e
)");
  EXPECT_EQ(recomputed(graph), (std::map<std::string, bool>{{"y", false}, {"z", true}}));
}

// A sum on the residual stream can only be made again from the product before it, which nobody keeps.
TEST(Selective, KeepsWhatCanOnlyBeMadeByAContraction) {
  const Graph graph = parse_graph(R"(remat-graph 1
external x 8 input
op linear forward kind=aten::linear time_ns=9 reads=x creates=y:8
op add forward kind=aten::add time_ns=1 reads=x,y creates=s:8
op norm forward kind=aten::layer_norm time_ns=1 reads=s creates=n:8
op loss forward kind=aten::loss time_ns=1 reads=n creates=l:8
op mean forward kind=aten::mean time_ns=1 reads=l creates=m:8
op d_norm backward kind=aten::mm time_ns=9 reads=m,s,n creates=d:8
output d
)");
  EXPECT_EQ(recomputed(graph), (std::map<std::string, bool>{{"s", false}, {"n", true}}));
}

// The scores are a product, but one that is cheap for its bytes: they and all up to the weighted sum are
// made again. The scores of the loss are not.
TEST(Selective, RecomputesTheCoreOfAttention) {
  const Graph graph = parse_graph(R"(remat-graph 1
external x 8 input
op qkv forward kind=aten::linear time_ns=9 reads=x creates=q:8
op scores forward kind=aten::bmm time_ns=9 reads=q creates=s:80
op scale forward kind=aten::mul time_ns=1 reads=s creates=t:80
op weights forward kind=aten::_softmax time_ns=1 reads=t creates=w:80
op sum forward kind=aten::bmm time_ns=9 reads=w,q creates=a:8
op head forward kind=aten::linear time_ns=9 reads=a creates=h:8
op prob forward kind=aten::_log_softmax time_ns=1 reads=h creates=p:8
op loss forward kind=aten::loss time_ns=1 reads=p creates=l:8
op mean forward kind=aten::mean time_ns=1 reads=l creates=m:8
op back backward kind=aten::back time_ns=9 reads=m,p,h,a,w,t,s,q creates=d:8
output d
)");
  EXPECT_EQ(recomputed(graph),
            (std::map<std::string, bool>{{"q", false}, {"s", true}, {"t", true}, {"w", true},
                                         {"a", false}, {"h", false}, {"p", true}}));
}

// Of ops whose names say nothing, those that take longer per byte than the median are expensive.
TEST(Selective, GoesByTimePerByteWhereNoNameIsKnown) {
  const Graph graph = parse_graph(R"(remat-graph 1
external x 8 input
op one forward kind=k time_ns=1 reads=x creates=a:8
op two forward kind=k time_ns=2 reads=a creates=b:8
op six forward kind=k time_ns=6 reads=b creates=c:8
op loss forward kind=k time_ns=1 reads=c creates=l:8
op mean forward kind=k time_ns=1 reads=l creates=m:8
op back backward kind=k time_ns=1 reads=m,a,b,c creates=d:8
output d
)");
  EXPECT_EQ(recomputed(graph),
            (std::map<std::string, bool>{{"a", true}, {"b", true}, {"c", false}}));
}

TEST(Selective, IsRightOnRandomGraphs) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    std::mt19937_64 generator(seed);
    const Graph graph = testing::random_graph(generator);
    EXPECT_EQ(testing::plan_fault(graph, plan_selective(graph, {}), kNoBudget), "") << seed;
  }
}

}  // namespace selective_test
}  // namespace remat
