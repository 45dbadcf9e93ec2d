# SPDX-License-Identifier: Apache-2.0
"""A training step inside a memory budget."""

import functools
import gc
import os
import threading
import typing
import warnings

import torch

from . import _remat
from ._optimizers import optimizers_noted
from ._program import Program
from ._remat import Error
from ._report import Report
from ._trees import tensors_in, with_tensors
from ._verbs import whole_bytes


def step(function=None, *, budget, **options):
    """A decorator: the function does a whole training step and from now on stays inside the budget.

        @remat.step(budget="2GiB")
        def train_step(batch): ...

    It computes the same bits as before. See Step for the budget and the options.
    """
    if function is None:
        return lambda each: Step(each, budget=budget, **options)
    return Step(function, budget=budget, **options)


class Progress(typing.NamedTuple):
    """How far a call is that is not planned yet. stage: "record", "measure", "plan" or "compare". ops_total: 0
    while nobody knows: in the first recording. spilled_bytes: values of the step that are in a file now."""

    stage: str
    ops_done: int
    ops_total: int
    spilled_bytes: int


class Step:
    """A function that does a training step, called inside a memory budget.

    budget: bytes as a number or with a unit ("2GiB", "1.5 GB"), a share of what the plain step needs
    ("50%"), or "auto": what the machine or the cgroup has left, less a tenth. It bounds parameters, buffers,
    gradients, optimizer state, batch and all intermediate values of the step.

    strategy: how to plan (remat.strategies()). plan_seconds, measure_seconds: how long to. max_variants:
    courses of the function (batch shapes, branches) that are kept with a plan. follow: after so many calls
    the function is no longer called, only its kernels. notice: called with a text about what is worth
    knowing; by default it becomes a warning, once per text. model: gives the layers their names where they
    are not called as modules of one outermost one. plan: a file that save_plan wrote; what it has a plan for
    is not measured and planned again. A file that is damaged or of another version is an error here; a plan of
    another program is one for `notice`, and planned anew. spill_folder: where values of the first call go that do
    not fit into the budget (a file without a name; by default in $TMPDIR or /var/tmp). pack: idle values
    may be kept in fewer bytes, where the same bits come back. offload: a folder on a disk; idle values may lie there in a
    file without a name, written and read beside the kernels. watch_memory: use less
    while the machine or the cgroup is short of memory, as far as there are plans. progress: called with a Progress, a few times a second, while
    a call is recorded, measured, planned and compared; what it raises ends the call, which is undone.
    """

    def __init__(
        self,
        function,
        *,
        budget,
        strategy="auto",
        plan_seconds=5.0,
        measure_seconds=2.0,
        seed=1,
        follow=None,
        max_variants=8,
        notice=None,
        model=None,
        plan=None,
        spill_folder=None,
        pack=True,
        offload=None,
        watch_memory=False,
        progress=None,
    ):
        if not callable(function):
            raise TypeError(f"remat.step expects a function, found {type(function).__name__}")
        functools.update_wrapper(self, function, updated=())
        self._function = function
        self._notice = _warn if notice is None else notice
        self._progress = progress
        self._program = Program(model)
        self._result = None  # of the last call; kept for `follow` only
        self._keeps_result = follow is not None
        self._step = _remat.Step(
            **_budget_arguments(budget),
            strategy=strategy,
            plan_seconds=plan_seconds,
            measure_seconds=measure_seconds,
            seed=seed,
            follow=follow,
            max_variants=max_variants,
            plan=None if plan is None else os.fspath(plan),
            spill_folder=None if spill_folder is None else os.fspath(spill_folder),
            pack=pack,
            offload_folder=None if offload is None else os.fspath(offload),
            watch_memory=watch_memory,
            reports_progress=progress is not None,
        )

    def __call__(self, *args, **kwargs):
        call = _Call(self, args, kwargs)
        with _collector_off, optimizers_noted() as optimizers:
            try:
                tensors = self._step.run(tensors_in((args, kwargs)), call)
            except BaseException as error:
                if self._step.undone():
                    optimizers.put_back()  # the tensors are already
                if isinstance(error, KeyboardInterrupt):
                    raise
                raise _translated(error, self._step.failed_op())
        for text in call.notices:
            self._notice(text)
        if call.called:
            if self._keeps_result:
                self._result = call.result
            return call.result
        return with_tensors(self._result, tensors)

    def __get__(self, instance, owner=None):
        """Of the class itself. As a method of its objects it is refused: they would share plans."""
        if instance is None:
            return self
        raise Error(
            "[step] a decorated method would share one step among all objects; make the step where the object "
            "is made: self.train_step = remat.step(self.train_step, budget=...)"
        )

    def report(self):
        """Bytes, times and counts of the plan that ran last."""
        return Report(self._step.report(), self)

    def set_budget(self, budget):
        """Another budget from the next call on: bytes, or with a unit, or a share of what the plain step needs.

        It is planned for, or a plan that was made before is taken, for every course that is known; nothing is recorded
        again. Memory beyond it goes back to the system. Infeasible is raised, and the budget stays for all of them, where
        no plan fits one.
        """
        arguments = _budget_arguments(budget)
        if arguments["budget_share"] is not None:
            whole = self._step.report()["keep_all_peak_bytes"]
            arguments["budget_bytes"] = int(arguments["budget_share"] * whole)
        if arguments["budget_bytes"] is None:
            raise Error("[step] the new budget is 'auto'; expected bytes or a share of the plain step's peak")
        self._step.set_budget_bytes(arguments["budget_bytes"])

    def graph(self):
        """The recorded step, with measured times."""
        return self._step.graph()

    def plan(self):
        """The order in which its ops run."""
        return self._step.plan()

    def schedule(self):
        """What runs when, on which copies, and when these are freed."""
        return self._step.schedule()

    def save_plan(self, path):
        """Writes the plans of all courses seen so far, for `plan` of a later process. It is a text."""
        self._step.save_plan(os.fspath(path))

    def save_html(self, path):
        """Writes a page with the plain step beside the planned one, and why. It needs no network."""
        page = self._page()
        with open(path, "w", encoding="utf-8") as file:
            file.write(page)

    def _page(self):
        return self._step.html(self._title())

    def _title(self):
        return getattr(self._function, "__name__", type(self._function).__name__)

    def __reduce__(self):
        raise TypeError(
            "a remat step cannot be pickled: it holds a plan for this process; make it where it is used"
        )

    def __repr__(self):
        return f"<remat.{type(self).__name__} of {self._title()}>"


class TrainingStep(Step):
    """A loss function and its backward inside a memory budget. With the optimizer outside:

        step = remat.TrainingStep(lambda x, y: F.cross_entropy(model(x), y), model, budget="50%")
        for x, y in loader:
            optimizer.zero_grad()
            loss = step(x, y)          # fills p.grad, as loss.backward() would
            optimizer.step()

    With the update inside a gradient dies when it is applied, so that less memory will do:

        step = remat.TrainingStep(loss_function, model, budget="1GiB", update=optimizer.step)
        loss = step(x, y)              # afterwards every p.grad of the model is None

    Clipping by value, or by norm (which needs all gradients at once), goes into `update`, before optimizer.step().

    The loss comes back without history. `model` (a module) gives layers and parameters their names.
    """

    def __init__(self, loss_function, model=None, *, budget, update=None, **options):
        if not callable(loss_function):
            raise TypeError(f"remat.TrainingStep expects a function, found {type(loss_function).__name__}")
        if update is not None and not callable(update):
            raise TypeError(f"remat.TrainingStep expects a function as update, found {type(update).__name__}")
        if update is not None and model is None:
            raise TypeError("remat.TrainingStep with an update expects the model, whose gradients it applies")

        @functools.wraps(loss_function, updated=())
        def forward_and_backward(*args, **kwargs):
            with torch.enable_grad():
                loss = loss_function(*args, **kwargs)
                _check_loss(loss)
                loss.backward()
            loss = loss.detach()
            if update is not None:
                update()
                model.zero_grad(set_to_none=True)
            return loss

        super().__init__(forward_and_backward, budget=budget, model=model, **options)


class _Call:
    """One call of the function, and what the library may ask the interpreter meanwhile."""

    def __init__(self, owner, args, kwargs):
        self._owner = owner
        self._args = args
        self._kwargs = kwargs
        self._collected = False
        self.called = False
        self.result = None
        self.call_site = owner._program.call_site
        self.name_of = owner._program.name_of
        self.notices = []  # told when the call is over, so that what they raise does not end a step half-way

    def __call__(self):
        self.called = True
        self.result = self._owner._function(*self._args, **self._kwargs)
        return tensors_in(self.result)

    def progress(self, *values):
        self._owner._progress(Progress(*values))

    def collect(self):
        # Objects of this call are young, since the collector was off. A second time it must be thorough.
        gc.collect() if self._collected else gc.collect(0)
        self._collected = True


class _CollectorOff:
    """Python's collector off while a step runs, so that what the step leaves in cycles stays young and is found
    quickly. With steps on several threads it is on: there would hardly be a moment without one."""

    def __init__(self):
        self._lock = threading.Lock()
        self._inside = 0
        self._was_on = False

    def __enter__(self):
        with self._lock:
            if self._inside == 0:
                self._was_on = gc.isenabled()
                gc.disable()
            elif self._was_on:
                gc.enable()
            self._inside += 1

    def __exit__(self, *_):
        with self._lock:
            self._inside -= 1
            if self._inside == 0 and self._was_on:
                gc.enable()


    def forget(self):
        """In a process that was forked inside of a step, which goes on without it."""
        self._lock = threading.Lock()
        if self._inside > 0 and self._was_on:
            gc.enable()
        self._inside = 0


_collector_off = _CollectorOff()
os.register_at_fork(after_in_child=_collector_off.forget)


def _budget_arguments(budget):
    if isinstance(budget, str):
        text = budget.strip()
        if text == "auto":
            return {"budget_bytes": None, "budget_share": None}
        if text.endswith("%"):
            whole = 10**15
            return {"budget_bytes": None, "budget_share": _remat.parse_budget(text, whole) / whole}
        return {"budget_bytes": _remat.parse_budget(text, 0), "budget_share": None}
    return {"budget_bytes": whole_bytes("step", budget, ", or 'auto'"), "budget_share": None}


def _check_loss(loss):
    if not isinstance(loss, torch.Tensor):
        found = type(loss).__name__
    elif loss.numel() != 1:
        found = f"a tensor of {loss.numel()} elements"
    elif not loss.requires_grad:
        found = "a tensor that does not depend on any parameter"
    else:
        return
    raise Error(f"[step] the loss function returned {found}; expected one number to differentiate")


def _translated(error, failed_op):
    """The library's errors that came through an op of torch arrive as RuntimeError; others stay as they are."""
    if type(error) is RuntimeError and str(error).startswith("[step] "):
        error = Error(str(error).split("\n")[0]).with_traceback(error.__traceback__)
        error.__suppress_context__ = True
    if failed_op and hasattr(error, "add_note"):
        error.add_note(f"remat: in {failed_op.strip()}")
    return error


def _warn(text):
    warnings.warn(text, stacklevel=3)  # where the step was called
