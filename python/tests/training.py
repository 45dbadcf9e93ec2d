# SPDX-License-Identifier: Apache-2.0
"""A plain loop beside the same loop in a remat step: every byte of both, after every step."""

import dataclasses
import warnings
from collections.abc import Callable

import remat
import torch
from torch.nn import functional as F

FEATURES = 8
CLASSES = 4


@dataclasses.dataclass
class Training:
    """What a test trains. `step` is called with batch(i); everything in `modules`, `optimizers` and `others` (tensors)
    is compared after it."""

    step: Callable
    modules: list = dataclasses.field(default_factory=list)
    optimizers: list = dataclasses.field(default_factory=list)
    others: list = dataclasses.field(default_factory=list)
    batch: Callable = lambda i: rows(i)  # arguments of step i
    before: Callable = lambda i: None  # called before step i, outside of it


def rows(i, count=64):
    """Features and classes, from a generator of their own: the default one belongs to the step."""
    generator = torch.Generator().manual_seed(1000 + i)
    x = torch.randn(count, FEATURES, generator=generator)
    return x, torch.randint(0, CLASSES, (count,), generator=generator)


def network(dropout=0.1):
    """Its activations take several times the bytes of its parameters, so that there is something to plan."""
    return torch.nn.Sequential(
        torch.nn.Linear(FEATURES, 16),
        torch.nn.BatchNorm1d(16),
        torch.nn.ReLU(),
        torch.nn.Dropout(dropout),
        torch.nn.Linear(16, 16),
        torch.nn.GELU(),
        torch.nn.Linear(16, CLASSES),
    )


def simple(step, model=None, optimizer=None):
    """The loop of the documentation."""
    model = network() if model is None else model
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9) if optimizer is None else optimizer

    @step
    def train(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return Training(train, [model], [optimizer])


def exact(value):
    """A value that compares equal only where every bit does, -0.0 and NaN included."""
    if isinstance(value, torch.Tensor):
        value = value.detach()
        raw = value.contiguous().reshape(-1).view(torch.uint8) if value.numel() else value
        return (type(value), value.dtype, tuple(value.shape), bytes(raw.numpy().tobytes()))
    if isinstance(value, dict):
        return (type(value), {key: exact(each) for key, each in value.items()})
    if isinstance(value, (list, tuple)):
        return (type(value), [exact(each) for each in value])
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return (type(value), {f.name: exact(getattr(value, f.name)) for f in dataclasses.fields(value)})
    if isinstance(value, float):
        return value.hex()
    return value


def state_of(training):
    """Everything that lives between steps."""
    state = {"generator": exact(torch.get_rng_state())}
    for index, module in enumerate(training.modules):
        for name, parameter in module.named_parameters():
            state[f"{index}.{name}"] = exact(parameter)
            state[f"gradient of {index}.{name}"] = exact(parameter.grad)
        for name, buffer in module.named_buffers():
            state[f"{index}.{name}"] = exact(buffer)
    for index, optimizer in enumerate(training.optimizers):
        for key, value in optimizer.state_dict()["state"].items():
            state[f"state {index}.{key}"] = exact(value)
    for index, tensor in enumerate(training.others):
        state[f"other {index}"] = exact(tensor)
    return state


def assert_same(found, expected, where=""):
    assert list(found) == list(expected), where
    differing = [name for name in expected if found[name] != expected[name]]
    assert not differing, f"{where}: other bits in {differing}"


def run(training, steps):
    """The state after every step, the result with it."""
    states = []
    for i in range(steps):
        training.before(i)
        result = training.step(*training.batch(i))
        states.append({"result": exact(result), **state_of(training)})
    return states


def made(build, step):
    torch.manual_seed(7)
    return build(step)


def planned_run(build, steps, budget="75%", wrap=remat.step, **options):
    """Trains inside of the budget, or of the least that a plan is known to need."""
    options = {"plan_seconds": 0.2, "measure_seconds": 0.1, **options}
    while True:
        steps_made = []

        def step(function):
            steps_made.append(wrap(function, budget=budget, **options))
            return steps_made[-1]

        try:
            training = made(build, step)
            return run(training, steps), steps_made[-1]
        except remat.Infeasible as error:
            # What an error asks for is enough for its course; another course of the function may need more.
            assert isinstance(budget, str) or budget < error.floor_bytes, error
            budget = error.floor_bytes


def check(build, steps=5, planned=2, wrap=remat.step, plain=lambda function: function, **options):
    """`build(step)` makes a Training whose function is decorated with `step`. It is trained plainly and in a budget."""
    expected = run(made(build, plain), steps)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found, step = planned_run(build, steps, wrap=wrap, **options)
    for i, (one, other) in enumerate(zip(found, expected, strict=True)):
        assert_same(one, other, f"after step {i}")
    assert_kept_its_word(step, planned)
    return step


def assert_kept_its_word(step, planned=1):
    """Bytes were predicted and inside of the budget, and the independent checker finds nothing wrong."""
    report = step.report()
    assert report.planned_steps >= planned, report
    assert report.measured_peak_bytes == report.predicted_peak_bytes, report
    assert report.peak_bytes <= report.budget_bytes, report
    assert report.counts["outside_allocations"] == 0, report.counts
    violation = remat.verify(step.graph(), step.schedule(), budget=report.budget_bytes)
    assert violation is None, violation.reason
