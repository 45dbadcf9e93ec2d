# SPDX-License-Identifier: Apache-2.0
"""torch.utils.checkpoint inside of a step runs its function plainly: there the plan decides what is computed
again. Everywhere else it is as it was."""

import torch.utils.checkpoint as torch_checkpoint

from . import _remat


class _CheckpointFunction(torch_checkpoint.CheckpointFunction):
    """What checkpoint(use_reentrant=True) calls."""

    @classmethod
    def apply(cls, run_function, preserve_rng_state, *args):
        if _remat.following():
            return run_function(*args)
        return super().apply(run_function, preserve_rng_state, *args)


def run_checkpoints_plainly():
    # Callers have imported checkpoint() by name; what it looks up when called is replaced, not itself.
    generator = torch_checkpoint._checkpoint_without_reentrant_generator

    def checkpoint_without_reentrant(fn, *args, **kwargs):
        if _remat.following():
            yield
            return
        yield from generator(fn, *args, **kwargs)

    torch_checkpoint.CheckpointFunction = _CheckpointFunction
    torch_checkpoint._checkpoint_without_reentrant_generator = checkpoint_without_reentrant
