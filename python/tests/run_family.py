# SPDX-License-Identifier: Apache-2.0
"""Trains families of families.py with a plain loop and inside a budget, and compares the bytes.

    run_family.py NAME ... [--budget 100%|50%]

Prints one line of JSON for each; the exit code is 0 if every check holds. Each is trained in a process of its own:
generators, allocator and numbers of threads are those of a fresh program. A budget below the least that can be planned is
replaced by that least and 3 %: "budget" is then "floor".
"""

import argparse
import copy
import json
import os
import random
import sys
import time
import warnings

import numpy
import torch

import remat
from families import RUN_PLAINLY, families

STEPS = 5
FLOOR_MARGIN = 1.03


class Training:
    """A model and its optimizer, from the same starting point each time."""

    def __init__(self, model):
        self.model = copy.deepcopy(model).train()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        self.losses = []

    def train_step(self, batch):
        self.optimizer.zero_grad()
        loss = self.model(**batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        return loss

    def run(self, step, make_batch):
        """Everything that the steps leave behind, by name, as bytes."""
        # Masks of spans and skipped layers are drawn on the host, by numpy or by Python.
        for seed in (torch.manual_seed, numpy.random.seed, random.seed):
            seed(7)
        for index in range(STEPS):
            loss = step(make_batch(torch.Generator().manual_seed(index)))
            self.losses.append(loss.detach().clone())
        return {name: _bytes(value) for name, value in self._state().items()}

    def _state(self):
        state = {f"loss {index}": loss for index, loss in enumerate(self.losses)}
        for name, parameter in self.model.named_parameters():
            state[f"parameter {name}"] = parameter
            state[f"gradient {name}"] = parameter.grad
            for key, value in self.optimizer.state[parameter].items():
                state[f"optimizer {key} {name}"] = value
        state.update((f"buffer {name}", buffer) for name, buffer in self.model.named_buffers())
        state["generator"] = torch.get_rng_state()
        state["numpy's generator"] = torch.from_numpy(numpy.random.get_state()[1].astype("int64"))
        state["Python's generator"] = torch.tensor(random.getstate()[1])
        return state


def _bytes(value):
    """A copy without a type, so that NaN equals itself and -0.0 is not 0.0. No gradient stays None."""
    if not isinstance(value, torch.Tensor):
        return value
    return value.detach().clone(memory_format=torch.contiguous_format).reshape(-1).view(torch.uint8)


def differences(expected, found):
    """Names whose bytes differ."""

    def same(name):
        if name not in expected or name not in found:
            return False
        a, b = expected[name], found[name]
        if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
            return torch.equal(a, b)
        return type(a) is type(b) and a == b

    return [name for name in {**expected, **found} if not same(name)]


def plain_run(model, make_batch):
    training = Training(model)
    return training.run(training.train_step, make_batch)


def budget_run(model, make_batch, budget, notices):
    training = Training(model)
    step = remat.step(
        training.train_step, budget=budget, plan_seconds=1.0, measure_seconds=0.5, notice=notices.append
    )
    found = training.run(step, make_batch)
    try:
        return found, step.report()
    except remat.Error:
        return found, None  # nothing was planned


def budget_or_floor_run(model, make_batch, budget, notices):
    """Every course of the function has a least of its own, so the floor may have to be raised more than once. One
    that is refused although the error calls it enough is a mistake of the library, and comes out."""
    asked = 0
    while True:
        try:
            return "floor" if asked else budget, *budget_run(model, make_batch, asked or budget, notices)
        except remat.Infeasible as error:
            if error.floor_bytes <= asked:
                raise
            asked = int(error.floor_bytes * FLOOR_MARGIN)


def failures_of(report):
    """What does not hold of a planned step."""
    outside = report.counts["outside_allocations"]
    checks = {
        f"{report.planned_steps} planned steps": report.planned_steps >= 2,
        f"predicted {report.predicted_peak_bytes} bytes, measured {report.measured_peak_bytes}": (
            report.predicted_peak_bytes == report.measured_peak_bytes
        ),
        f"{outside} outside allocations": outside == 0,
        f"peak {report.peak_bytes} above the budget {report.budget_bytes}": report.peak_bytes <= report.budget_bytes,
    }
    return [text for text, holds in checks.items() if not holds]


def run(name, budget):
    torch.manual_seed(0)
    model, make_batch = families()[name]()
    expected = plain_run(model, make_batch)
    notices = []
    budget, found, report = budget_or_floor_run(model, make_batch, budget, notices)

    planned_steps = report.planned_steps if report else 0
    result = {"budget": budget, "planned_steps": planned_steps, "compared": len(expected), "failures": []}
    different = differences(expected, found)
    repeatable = not different or not differences(expected, plain_run(model, make_batch))
    if different and repeatable:
        some = ", ".join(different[:5])
        result["failures"].append(f"other bytes in {len(different)} of {len(expected)}: {some}")
    if name in RUN_PLAINLY:
        if planned_steps > 0:
            result["failures"].append(f"{planned_steps} planned steps, listed in RUN_PLAINLY")
        if not notices:
            result["failures"].append("run plainly without a notice")
    elif not repeatable:
        result["failures"].append("two plain loops differ, too")
    elif report is None:
        result["failures"].append("nothing was planned")
    else:
        result["failures"] += failures_of(report)
    if report:
        result["peak_share"] = round(report.peak_bytes / report.keep_all_peak_bytes, 3)
        result["plain_bytes"] = report.keep_all_peak_bytes
        result["variants"] = report.variants
    result["notices"] = notices
    return result


def print_result(name, budget):
    warnings.simplefilter("ignore")
    begin = time.perf_counter()
    try:
        result = run(name, budget)
    except Exception as error:
        notes = getattr(error, "__notes__", [])
        result = {"failures": [" | ".join([f"{type(error).__name__}: {error}", *notes])]}
    result = {"family": name, "asked": budget, **result}
    result["seconds"] = round(time.perf_counter() - begin, 1)
    print(json.dumps(result), flush=True)
    return 1 if result["failures"] else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="+", choices=sorted(families()), metavar="NAME")
    parser.add_argument("--budget", default="100%")
    arguments = parser.parse_args()
    failed = False
    for name in arguments.names:
        # Importing takes as long as training: it is done once, and no thread runs yet.
        child = os.fork()
        if child == 0:
            sys.exit(print_result(name, arguments.budget))
        failed = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 0 or failed
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
