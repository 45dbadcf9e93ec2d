# SPDX-License-Identifier: Apache-2.0
"""The dicts of torch.optim's optimizers, as they were before a step. A step that is interrupted gets the bytes of
every tensor back that was there before; state that it has just created must go, too."""

import contextlib
import threading

from torch.optim.optimizer import register_optimizer_step_pre_hook

_thread = threading.local()


class _Noted:
    """The state of every optimizer whose step() was called: the dicts, not the tensors in them."""

    def __init__(self):
        self._states = {}  # id: (optimizer, {parameter: (its dict, a copy of that)})

    def note(self, optimizer):
        if id(optimizer) not in self._states:
            state = {parameter: (each, dict(each)) for parameter, each in optimizer.state.items()}
            self._states[id(optimizer)] = (optimizer, state)

    def put_back(self):
        for optimizer, state in self._states.values():
            optimizer.state.clear()
            for parameter, (each, before) in state.items():
                each.clear()
                each.update(before)
                optimizer.state[parameter] = each


@contextlib.contextmanager
def optimizers_noted():
    """Notes what this thread's optimizers hold when they first step."""
    outer = getattr(_thread, "noted", None)
    _thread.noted = _Noted()
    try:
        yield _thread.noted
    finally:
        _thread.noted = outer


def _before_step(optimizer, _args, _kwargs):
    noted = getattr(_thread, "noted", None)
    if noted is not None:
        noted.note(optimizer)


register_optimizer_step_pre_hook(_before_step)
