# SPDX-License-Identifier: Apache-2.0
"""A small residual network learns the direction of stripes, in half the memory that the plain loop needs.

    python plain_loop.py [--budget 50%] [--steps 40] [--batch 32]

The images are made on the spot. Without the line that begins with @ this is an ordinary loop, and it computes the same bits.
"""

import argparse

import torch
from torch import nn
from torch.nn import functional as F

import remat


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(width)
        self.second = nn.Conv2d(width, width, 3, padding=1)

    def forward(self, x):
        return x + self.second(F.relu(self.norm(self.first(x))))


def network(width=16, blocks=4, classes=4):
    return nn.Sequential(
        nn.Conv2d(1, width, 3, padding=1),
        *[Block(width) for _ in range(blocks)],
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Dropout(0.1),
        nn.Linear(width, classes),
    )


def stripes(batch, side=32, classes=4):
    """Noisy stripes in one of four directions, and which it is."""
    labels = torch.randint(classes, (batch,))
    angle = (labels * torch.pi / classes).view(-1, 1, 1)
    y, x = torch.meshgrid(torch.arange(side), torch.arange(side), indexing="ij")
    phase = 6 * torch.rand(batch, 1, 1)
    images = torch.sin(x * torch.cos(angle) + y * torch.sin(angle) + phase)
    return (images + 0.3 * torch.randn(batch, side, side)).unsqueeze(1), labels


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--budget", default="50%", help="bytes like 20MiB, a share of the plain peak, or auto")
    options.add_argument("--steps", type=int, default=40)
    options.add_argument("--batch", type=int, default=32)
    chosen = options.parse_args()

    torch.manual_seed(0)
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)

    @remat.step(budget=chosen.budget)
    def train_step(images, labels):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        return loss

    for i in range(chosen.steps):
        loss = train_step(*stripes(chosen.batch))
        if i % 5 == 0 or i == chosen.steps - 1:
            print(f"step {i}: loss {loss.item():.4f}")
    print(train_step.report())


if __name__ == "__main__":
    main()
