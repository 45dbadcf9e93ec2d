// SPDX-License-Identifier: Apache-2.0
// Two activations of 100 bytes, used in backward, and scratch of 150 bytes in between: 350 bytes as
// the ops stand, 250 if `a` is made only after that.
#include <remat/remat.h>

#ifdef WITH_REPORT
#include <remat/report/save_html.h>
#endif

#include <cstdio>

int main() {
  const remat::Graph graph = remat::parse_graph(R"(remat-graph 1
external x 0 input
op f forward kind=f time_ns=10 reads=x creates=a:100
op g forward kind=g time_ns=10 reads=x creates=b:100
op h forward kind=h time_ns=10 workspace=150 reads=b creates=loss:0
op k backward kind=k time_ns=10 reads=a,b creates=grad:0
output loss
output grad
)");
  const remat::Plan plan =
      remat::plan(graph, {.budget_bytes = 260, .strategy = "optimal", .time_limit_seconds = 10});
  const remat::Schedule schedule = remat::rewrite(graph, plan.order);
  const auto violation = remat::verify(graph, schedule, 260);
#ifdef WITH_REPORT
  remat::save_html(remat::profile(graph, 2), "profile.html");
#endif
  std::printf("%s: peak %lld\n", plan.strategy.c_str(), static_cast<long long>(plan.peak_bytes));
  return plan.feasible && plan.peak_bytes == 250 && !violation ? 0 : 1;
}
