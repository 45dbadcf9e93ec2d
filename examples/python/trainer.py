# SPDX-License-Identifier: Apache-2.0
"""A `transformers` Trainer that trains inside a memory budget: the subclass is three lines.

    python trainer.py [--budget 60%] [--steps 20]

A small GPT-2 with random weights learns to count; nothing is downloaded. Needs `pip install transformers accelerate`.
"""

import argparse
import tempfile

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

import remat


class BudgetTrainer(Trainer):
    """Forward and backward stay inside the budget; the optimizer, the schedule and the rest are the Trainer's."""

    def __init__(self, *args, budget, **kwargs):
        super().__init__(*args, **kwargs)
        self.training_step = remat.step(self.training_step, budget=budget)


class Counting(torch.utils.data.Dataset):
    """Sequences that count upwards from anywhere, modulo the vocabulary."""

    def __init__(self, size, length=64, vocabulary=100):
        generator = torch.Generator().manual_seed(0)
        starts = torch.randint(vocabulary, (size, 1), generator=generator)
        self.rows = (starts + torch.arange(length)) % vocabulary

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return {"input_ids": self.rows[index], "labels": self.rows[index]}


def make_trainer(steps, budget=None, output_dir=None, save_strategy="no", **more):
    """Without a budget, the Trainer as it comes. `more` are further TrainingArguments."""
    config = GPT2Config(vocab_size=100, n_positions=64, n_embd=64, n_layer=4, n_head=4, bos_token_id=0, eos_token_id=0)
    arguments = TrainingArguments(
        output_dir=output_dir or tempfile.gettempdir(),
        per_device_train_batch_size=16,
        max_steps=steps,
        learning_rate=3e-3,
        logging_steps=1,
        save_strategy=save_strategy,
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
        seed=0,
        **more,
    )
    torch.manual_seed(0)
    given = {"model": GPT2LMHeadModel(config), "args": arguments, "train_dataset": Counting(16 * steps)}
    return Trainer(**given) if budget is None else BudgetTrainer(**given, budget=budget)


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--budget", default="60%", help="bytes like 200MiB, a share of the plain peak, or auto")
    options.add_argument("--steps", type=int, default=20)
    chosen = options.parse_args()
    trainer = make_trainer(chosen.steps, chosen.budget)
    trainer.train()
    print(trainer.training_step.report())


if __name__ == "__main__":
    main()
