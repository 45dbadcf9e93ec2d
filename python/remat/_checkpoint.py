# SPDX-License-Identifier: Apache-2.0
"""torch.utils.checkpoint inside of a step runs its function plainly: there the plan decides what is computed
again. Everywhere else it is as it was."""

import torch.utils.checkpoint as torch_checkpoint

from . import _remat


class _PlainFunction:
    """Stands in for CheckpointFunction, whose apply is all that checkpoint(use_reentrant=True) calls."""

    def __init__(self, original):
        self._original = original

    def apply(self, run_function, preserve_rng_state, *args):
        if _remat.following():
            return run_function(*args)
        return self._original.apply(run_function, preserve_rng_state, *args)

    def __getattr__(self, name):
        return getattr(self._original, name)


def run_checkpoints_plainly():
    # Callers have imported checkpoint() by name; what it looks up when called is replaced, not itself.
    reentrant = torch_checkpoint.CheckpointFunction
    generator = torch_checkpoint._checkpoint_without_reentrant_generator

    def checkpoint_without_reentrant(fn, *args, **kwargs):
        if _remat.following():
            yield
            return
        yield from generator(fn, *args, **kwargs)

    torch_checkpoint.CheckpointFunction = _PlainFunction(reentrant)
    torch_checkpoint._checkpoint_without_reentrant_generator = checkpoint_without_reentrant
