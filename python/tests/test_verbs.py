# SPDX-License-Identifier: Apache-2.0
"""The pieces below a step: graphs as text, plans, schedules, the simulator, the checker."""

import pathlib

import pytest
import remat

GRAPHS = pathlib.Path(__file__).resolve().parents[2] / "bench" / "graphs"


@pytest.fixture
def mlp():
    return remat.parse_graph((GRAPHS / "mlp.graph").read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", sorted(GRAPHS.glob("*.graph")), ids=lambda path: path.stem)
def test_graphs_survive_a_round_trip(path):
    graph = remat.parse_graph(path.read_text(encoding="utf-8"))
    text = remat.print_graph(graph)
    assert text == str(graph)
    assert remat.parse_graph(text) == graph
    assert graph.op_count == len(graph.ops) > 10
    assert 0 < remat.floor_bytes(graph) <= graph.keep_all_peak_bytes


@pytest.mark.parametrize("budget", ["100%", "60%"])
@pytest.mark.parametrize("placed", [False, True])
def test_plan_rewrite_simulate_verify(mlp, budget, placed):
    plan = remat.plan(mlp, budget=budget, placed=placed, time_limit_seconds=0.5)
    assert plan.feasible
    schedule = remat.rewrite(mlp, plan)
    budget_bytes = int(mlp.keep_all_peak_bytes * (1.0 if budget == "100%" else 0.6))
    assert remat.verify(mlp, schedule, budget=budget) is None
    simulation = remat.simulate(mlp, schedule)
    assert simulation.peak_bytes == max(simulation.timeline) <= budget_bytes
    assert simulation.peak_bytes == plan.peak_bytes and simulation.time_ns == plan.time_ns
    if placed:
        assert mlp.external_bytes + plan.arena_bytes <= budget_bytes


def test_schedules_survive_a_round_trip(mlp):
    schedule = remat.rewrite(mlp, remat.plan(mlp, budget="60%", time_limit_seconds=0.5))
    text = remat.print_schedule(schedule, mlp)
    assert remat.parse_schedule(text, mlp) == schedule
    assert len(schedule) >= mlp.op_count


def test_the_same_options_give_the_same_plan(mlp):
    plans = [remat.plan(mlp, budget="60%", strategy="mutwo", seed=3) for _ in range(2)]
    assert plans[0].order == plans[1].order


@pytest.mark.parametrize("name", remat.strategies())
def test_every_strategy_verifies(mlp, name):
    plan = remat.plan(mlp, budget="100%", strategy=name, time_limit_seconds=0.3)
    assert plan.feasible, plan.note
    assert remat.verify(mlp, remat.rewrite(mlp, plan), budget="100%") is None


def test_strategies_have_a_summary():
    names = remat.strategies()
    assert {"auto", "search"} <= set(names)
    assert all(isinstance(text, str) and text for text in names.values())


def test_an_infeasible_budget_is_an_answer(mlp):
    plan = remat.plan(mlp, budget=remat.floor_bytes(mlp) - 1, time_limit_seconds=0.5)
    assert not plan.feasible


def test_the_floor_is_reached(mlp):
    floor = remat.floor_bytes(mlp)
    plan = remat.plan(mlp, budget=floor, time_limit_seconds=0.5)
    assert plan.feasible and plan.peak_bytes <= floor


def test_verify_names_the_violation(mlp):
    schedule = remat.rewrite(mlp, remat.plan(mlp, budget="100%"))
    found = remat.verify(mlp, schedule, budget="50%")
    assert isinstance(found, remat.Violation)
    assert found.kind and found.reason and found.step >= 0


def test_explain_says_why_each_value_is_kept_or_computed_again(mlp):
    plan = remat.plan(mlp, budget="60%", time_limit_seconds=0.5)
    every = remat.explain(mlp, plan)
    again = [each for each in every if each["recomputes"] > 0]
    assert again and all(each["sentence"] and each["bytes"] >= 0 for each in every)
    assert remat.explain(mlp, plan, again[0]["value"]) == again[0]
    with pytest.raises(remat.Error, match="no value 'nothing'"):
        remat.explain(mlp, plan, "nothing")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("remat-graph 1\nexternal x lots input\n", 2),
        ("remat-graph 1\nexternal x 4 input\nop a forward kind=f time_ns=1 reads=y creates=a:4\n", 3),
        ("remat-graph 1\nexternal x 4 input\n\nnonsense\n", 4),
        ("not a graph", 1),
    ],
)
def test_errors_in_a_graph_have_a_line(text, line):
    with pytest.raises(remat.Error, match=rf"\b(line )?{line}\b"):
        remat.parse_graph(text)


def test_errors_in_a_schedule_have_a_line(mlp):
    text = remat.print_schedule(remat.rewrite(mlp, remat.plan(mlp, budget="100%")), mlp)
    broken = text.replace("\n", "\nnonsense\n", 3).split("\n")
    with pytest.raises(remat.Error, match=r"\b2\b"):
        remat.parse_schedule("\n".join(broken), mlp)


@pytest.mark.parametrize("budget", ["half", "", "-3%", None, -1, float("nan"), float("inf")])
def test_a_budget_that_is_none(mlp, budget):
    with pytest.raises(remat.Error, match="expected"):
        remat.plan(mlp, budget=budget)


def test_an_unknown_strategy_is_refused(mlp):
    with pytest.raises(remat.Error, match="magic"):
        remat.plan(mlp, budget="50%", strategy="magic")
