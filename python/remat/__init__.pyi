# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable
from os import PathLike
from typing import Any, Generic, NamedTuple, ParamSpec, TypeAlias, TypedDict, TypeVar, overload, type_check_only

import torch
from typing_extensions import Self

from ._remat import Error as Error
from ._remat import Graph as Graph
from ._remat import Infeasible as Infeasible
from ._remat import Plan as Plan
from ._remat import Schedule as Schedule
from ._remat import Simulation as Simulation
from ._remat import Violation as Violation
from ._remat import __version__ as __version__
from ._remat import _Explanation
from ._remat import floor_bytes as floor_bytes
from ._remat import parse_graph as parse_graph
from ._remat import parse_schedule as parse_schedule
from ._remat import print_graph as print_graph
from ._remat import print_schedule as print_schedule
from ._remat import rewrite as rewrite
from ._remat import simulate as simulate

__all__ = [
    "Error",
    "Graph",
    "Infeasible",
    "Plan",
    "Progress",
    "Report",
    "Schedule",
    "Simulation",
    "Step",
    "TrainingStep",
    "Violation",
    "__version__",
    "explain",
    "floor_bytes",
    "parse_graph",
    "parse_schedule",
    "plan",
    "print_graph",
    "print_schedule",
    "rewrite",
    "simulate",
    "step",
    "strategies",
    "verify",
]

_P = ParamSpec("_P")
_R = TypeVar("_R")
_Budget: TypeAlias = str | int | float  # bytes, "2GiB", "50%"; for a step also "auto"

@type_check_only
class _StepCounts(TypedDict):
    peak_bytes: int
    outside_allocations: int
    outside_bytes: int
    moved_bytes: int
    offloaded_bytes: int
    waited_ns: int

class Progress(NamedTuple):
    stage: str
    ops_done: int
    ops_total: int
    spilled_bytes: int

class Report:
    budget_bytes: int
    keep_all_peak_bytes: int
    eager_peak_bytes: int
    floor_bytes: int
    predicted_peak_bytes: int
    measured_peak_bytes: int
    peak_bytes: int
    arena_bytes: int
    external_bytes: int
    external_bytes_by_role: dict[str, int]
    keep_all_time_ns: int
    time_ns: int
    strategy: str
    from_saved_plan: bool
    saved_plan_refused: str
    from_other_size: bool
    improved_plans: int
    capture_seconds: float
    measure_seconds: float
    spilled_bytes: int
    channel: str
    channel_bytes: int
    plan_seconds: float
    variants: int
    planned_steps: int
    plain_steps: int
    counts: _StepCounts
    timeline: list[int]
    def __init__(self, values: dict[str, Any], step: Step[..., Any]) -> None: ...
    def as_dict(self) -> dict[str, Any]: ...
    def _repr_html_(self) -> str: ...

class Step(Generic[_P, _R]):
    def __init__(
        self,
        function: Callable[_P, _R],
        *,
        budget: _Budget,
        strategy: str = "auto",
        plan_seconds: float = 5.0,
        measure_seconds: float = 2.0,
        seed: int = 1,
        follow: int | None = None,
        max_variants: int = 8,
        notice: Callable[[str], object] | None = None,
        model: torch.nn.Module | None = None,
        plan: str | PathLike[str] | None = None,
        spill_folder: str | PathLike[str] | None = None,
        pack: bool = True,
        offload: str | PathLike[str] | None = None,
        watch_memory: bool = False,
        progress: Callable[[Progress], object] | None = None,
    ) -> None: ...
    def __call__(self, *args: _P.args, **kwargs: _P.kwargs) -> _R: ...
    # Not as a method: the step would be shared by all objects of the class.
    def __get__(self, instance: None, owner: type | None = None) -> Self: ...
    def report(self) -> Report: ...
    def set_budget(self, budget: _Budget) -> None: ...
    def graph(self) -> Graph: ...
    def plan(self) -> Plan: ...
    def schedule(self) -> Schedule: ...
    def save_plan(self, path: str | PathLike[str]) -> None: ...
    def save_html(self, path: str | PathLike[str]) -> None: ...

class TrainingStep(Step[_P, torch.Tensor]):
    def __init__(
        self,
        loss_function: Callable[_P, torch.Tensor],
        model: torch.nn.Module | None = None,
        *,
        budget: _Budget,
        update: Callable[[], Any] | None = None,
        strategy: str = "auto",
        plan_seconds: float = 5.0,
        measure_seconds: float = 2.0,
        seed: int = 1,
        follow: int | None = None,
        max_variants: int = 8,
        notice: Callable[[str], object] | None = None,
        plan: str | PathLike[str] | None = None,
        spill_folder: str | PathLike[str] | None = None,
        pack: bool = True,
        offload: str | PathLike[str] | None = None,
        watch_memory: bool = False,
        progress: Callable[[Progress], object] | None = None,
    ) -> None: ...

@overload
def step(
    function: Callable[_P, _R],
    *,
    budget: _Budget,
    strategy: str = "auto",
    plan_seconds: float = 5.0,
    measure_seconds: float = 2.0,
    seed: int = 1,
    follow: int | None = None,
    max_variants: int = 8,
    notice: Callable[[str], object] | None = None,
    model: torch.nn.Module | None = None,
    plan: str | PathLike[str] | None = None,
    spill_folder: str | PathLike[str] | None = None,
    pack: bool = True,
    offload: str | PathLike[str] | None = None,
    watch_memory: bool = False,
    progress: Callable[[Progress], object] | None = None,
) -> Step[_P, _R]: ...
@overload
def step(
    function: None = None,
    *,
    budget: _Budget,
    strategy: str = "auto",
    plan_seconds: float = 5.0,
    measure_seconds: float = 2.0,
    seed: int = 1,
    follow: int | None = None,
    max_variants: int = 8,
    notice: Callable[[str], object] | None = None,
    model: torch.nn.Module | None = None,
    plan: str | PathLike[str] | None = None,
    spill_folder: str | PathLike[str] | None = None,
    pack: bool = True,
    offload: str | PathLike[str] | None = None,
    watch_memory: bool = False,
    progress: Callable[[Progress], object] | None = None,
) -> Callable[[Callable[_P, _R]], Step[_P, _R]]: ...
def plan(
    graph: Graph,
    *,
    budget: _Budget,
    strategy: str = "auto",
    placed: bool = False,
    time_limit_seconds: float = 2.0,
    keep_order: bool = False,
    seed: int = 1,
) -> Plan: ...
def verify(graph: Graph, schedule: Schedule, *, budget: _Budget) -> Violation | None: ...
@overload
def explain(graph: Graph, plan: Plan, value: None = None) -> list[_Explanation]: ...
@overload
def explain(graph: Graph, plan: Plan, value: str) -> _Explanation: ...
def strategies() -> dict[str, str]: ...
