# SPDX-License-Identifier: Apache-2.0
"""The verbs, for those who want the pieces: graphs are text, plans are orders of ops."""

from . import _remat
from ._remat import (
    floor_bytes,
    parse_graph,
    parse_schedule,
    print_graph,
    print_schedule,
    rewrite,
    simulate,
)

__all__ = [
    "explain",
    "floor_bytes",
    "parse_graph",
    "parse_schedule",
    "plan",
    "print_graph",
    "print_schedule",
    "rewrite",
    "simulate",
    "strategies",
    "verify",
]


def whole_bytes(verb, budget, others=""):
    if isinstance(budget, bool) or not isinstance(budget, (int, float)) or not 0 <= budget < 2**62:
        raise _remat.Error(
            f"[{verb}] the budget is {budget!r}; expected bytes (a number, or a text like '2GiB'), a share of the "
            f"plain peak like '50%'{others}"
        )
    return int(budget)


def budget_bytes_of(graph, budget):
    """Bytes from a number or a text; "50%" is a share of what the graph needs when everything is kept."""
    if isinstance(budget, str):
        return _remat.parse_budget(budget, graph.keep_all_peak_bytes)
    return whole_bytes("plan", budget)


def plan(
    graph, *, budget, strategy="auto", placed=False, time_limit_seconds=2.0, keep_order=False, seed=1
):
    """The fastest order of the graph's ops, with repeats, that fits the budget (bytes, "2GiB" or "50%").

    An infeasible budget is no error: look at `feasible`. With `placed` the plan has addresses too, and
    the budget bounds externals and arena. Same graph and options: the same plan.
    """
    return _remat.plan(
        graph,
        budget_bytes=budget_bytes_of(graph, budget),
        strategy=strategy,
        placed=placed,
        time_limit_seconds=time_limit_seconds,
        keep_order=keep_order,
        seed=seed,
    )


def verify(graph, schedule, *, budget):
    """The first violation that the independent checker finds, or None."""
    return _remat.verify(graph, schedule, budget_bytes_of(graph, budget))


def explain(graph, plan, value=None):
    """Why values are kept or computed again: a list of dicts, or the one of `value`."""
    found = _remat.explain(graph, plan)
    if value is None:
        return found
    for each in found:
        if each["value"] == value:
            return each
    raise _remat.Error(
        f"[explain] the graph has no value '{value}' that an op makes; expected a name from print_graph()"
    )


def strategies():
    """{name: what it is}"""
    return dict(_remat.strategies())
