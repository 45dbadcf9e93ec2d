# SPDX-License-Identifier: Apache-2.0
"""The ways to run one training step. Each changes the model or the step in the way its users do.

    plain                 nothing
    checkpoint            torch.utils.checkpoint around every block
    checkpoint_segments   ... around every k consecutive blocks; the worker tries k = 2, 3, 4, keeps the lowest peak
    checkpoint_half       ... around every second block, the others are kept
    selective             around every block, with a policy: results of matmuls, convolutions and attention are kept
    compile[=SHARE]       torch.compile of forward and loss; SHARE is activation_memory_budget
    remat=BUDGET          remat.step; "50%" or bytes
"""

import functools

import torch
import torch._functorch.config as functorch_config
from torch import nn
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

aten = torch.ops.aten
KEPT = [
    aten.mm.default,
    aten.addmm.default,
    aten.bmm.default,
    aten.baddbmm.default,
    aten.convolution.default,
    aten._scaled_dot_product_flash_attention_for_cpu.default,
]
SEGMENT_SIZES = (2, 3, 4)


class Segment(nn.Module):
    """Consecutive blocks, computed again together in backward."""

    def __init__(self, blocks, **options):
        super().__init__()
        self.blocks = nn.ModuleList(blocks)
        self.options = options

    def run(self, x, *args, **kwargs):
        for block in self.blocks:
            x = block(x, *args, **kwargs)
        return x

    def forward(self, x, *args, **kwargs):
        return checkpoint(self.run, x, *args, use_reentrant=False, **self.options, **kwargs)


def _rebuild(container, blocks):
    container._modules.clear()
    for index, block in enumerate(blocks):
        container.add_module(str(index), block)


def checkpoint_segments(containers, size, **options):
    for container in containers:
        blocks = list(container)
        _rebuild(container, [Segment(blocks[i : i + size], **options) for i in range(0, len(blocks), size)])


def undo_segments(containers):
    for container in containers:
        _rebuild(container, [block for segment in list(container) for block in segment.blocks])


def checkpoint_every_second(containers):
    index = 0
    for container in containers:
        blocks = []
        for block in list(container):
            blocks.append(Segment([block]) if index % 2 == 0 else block)
            index += 1
        _rebuild(container, blocks)


def apply_method(method, task, train_step):
    """The step function of the method. `train_step(loss, *batch)` is the plain one."""
    name, _, value = method.partition("=")
    loss = task.loss
    if name == "checkpoint":
        checkpoint_segments(task.containers, 1)
    elif name == "checkpoint_half":
        checkpoint_every_second(task.containers)
    elif name == "selective":
        contexts = functools.partial(create_selective_checkpoint_contexts, KEPT)
        checkpoint_segments(task.containers, 1, context_fn=contexts)
    elif name == "compile":
        if value:
            functorch_config.activation_memory_budget = float(value)
        loss = torch.compile(loss)
    elif name == "remat":
        import remat

        budget = value if value.endswith("%") else int(value)
        return remat.step(functools.partial(train_step, loss), budget=budget, model=task.model)
    elif name not in ("plain", "checkpoint_segments"):
        raise ValueError(f"unknown method {method}")
    return functools.partial(train_step, loss)
