# SPDX-License-Identifier: Apache-2.0
"""What a type checker must make of the package. test_package.py hands this file to mypy; nobody runs it.
An ignored error that mypy does not find is itself an error in strict mode."""

from typing import assert_type

import remat

graph = remat.parse_graph("")


@remat.step(budget="2GiB", plan_seconds=1.0)
def train_step(batch: dict[str, int], scale: float = 1.0) -> float:
    return scale * len(batch)


assert_type(train_step({"a": 1}, scale=2.0), float)
train_step(3)  # type: ignore[arg-type]
remat.step(train_step)  # type: ignore[call-overload]
remat.step(len, budget="50%", budgets=1)  # type: ignore[call-overload]
assert_type(remat.step(len, budget=2**30)([1]), int)
assert_type(train_step.report().peak_bytes, int)
assert_type(train_step.report().counts["moved_bytes"], int)
assert_type(train_step.graph(), remat.Graph)

plan = remat.plan(graph, budget="50%", strategy="mutwo")
plan.feasible = True  # type: ignore[misc]
assert_type(plan.order, list[int])
assert_type(plan.arena_bytes, int | None)
assert_type(remat.verify(graph, remat.rewrite(graph, plan), budget=100), remat.Violation | None)
assert_type(remat.explain(graph, plan, "h1")["bytes"], int)
assert_type(remat.explain(graph, plan)[0]["sentence"], str)
assert_type(remat.strategies(), dict[str, str])
try:
    train_step({})
except remat.Infeasible as error:
    assert_type(error.floor_bytes, int)
