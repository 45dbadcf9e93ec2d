# SPDX-License-Identifier: Apache-2.0
"""Train inside a memory budget: the same bits, never more bytes.

    @remat.step(budget="2GiB")
    def train_step(batch):
        optimizer.zero_grad()
        loss = model(**batch).loss
        loss.backward()
        optimizer.step()
        return loss

See docs/python.md in the repository.
"""

from ._version import check_torch as _check_torch

_check_torch()

from ._checkpoint import run_checkpoints_plainly as _run_checkpoints_plainly
from ._remat import (
    Error,
    Graph,
    Infeasible,
    Plan,
    Schedule,
    Simulation,
    Violation,
    __version__,
)
from ._report import Report
from ._step import Progress, Step, TrainingStep, step
from ._verbs import (
    explain,
    floor_bytes,
    parse_graph,
    parse_schedule,
    plan,
    print_graph,
    print_schedule,
    rewrite,
    simulate,
    strategies,
    verify,
)

_run_checkpoints_plainly()

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
