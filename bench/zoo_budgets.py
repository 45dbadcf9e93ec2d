#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains every model of the zoo, at sizes at which activations are most of the peak, three steps
inside 100, 75, 50 and 35 % of what plain LibTorch needs, and at the floor, and checks each: the same
bits, the predicted bytes, nothing outside of the arena. With --moves five steps inside 100, 50 and 33 % and
at the floor, by recomputing alone, with packing, with offloading to that folder, and with both.

    bench/zoo_budgets.py build/bin/remat [--moves FOLDER] [MODEL...]

Exits with 1 if anything differs. Refusals below the floor are as they should be; at the floor
itself, where addresses may cost a little more than what is live, the budget is raised by 1 % at a time.
"""

import argparse
import json
import subprocess
import sys

SIZES = {
    "resnet18": "--batch 16 --image 128 --width 32",
    "resnet50": "--batch 8 --image 128 --width 32",
    "resnet152": "--batch 24 --image 96 --width 32",
    "bert_base": "--batch 4 --seq 128 --width 192",
    "gpt2_small": "--batch 4 --seq 128 --width 192",
    "gpt2_small_fused": "--batch 4 --seq 128 --width 192",
    "vit_small": "--batch 8 --width 192",
    "unet": "--batch 2 --image 128 --width 16",
    "convnext_tiny": "--batch 8 --image 128 --width 48",
    "lstm_lm": "--batch 16 --width 128",
    "mlp_mixer": "--batch 8 --width 192",
}
INFEASIBLE = 3
MIB = 2**20


class Way:
    """What the tool is told besides model and budget."""

    def __init__(self, name, shares, steps, *options):
        self.name, self.shares, self.options = name, shares, ["--steps", str(steps), *options]


def ways(folder):
    if folder is None:
        return [Way("", ["100%", "75%", "50%", "35%"], 3)]
    shares = ["100%", "50%", "33%"]
    return [Way("recompute", shares, 5, "--no-pack"), Way("pack", shares, 5),
            Way("offload", shares, 5, "--no-pack", "--offload", folder),
            Way("pack, offload", shares, 5, "--offload", folder)]


def run(tool, model, budget, way):
    command = [tool, "run", model, *SIZES[model].split(), "--budget", budget, "--verify",
               "--time-limit", "2", *way.options, "--json", "-"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode not in (0, INFEASIBLE):
        sys.exit(f"{' '.join(command)}: exit code {done.returncode}\n{done.stderr}")
    return json.loads(done.stdout)


def faults_of(result):
    """What is wrong with a step that ran, as words."""
    faults = [what for what, same in result["bit_identical"].items() if not same]
    if result["measured_peak_bytes"] != result["predicted_peak_bytes"]:
        faults.append("predicted bytes")
    if result["reserved_bytes"] > result["budget_bytes"]:
        faults.append("budget")
    if result["outside_allocations"]:
        faults.append("outside of the arena")
    return faults


def row(model, label, result):
    whole = result["keep_all_peak_bytes"]
    line = f"| {model} | {label} | {result['budget_bytes'] / MIB:.1f} "
    if not result["feasible"]:
        below = result["budget_bytes"] < result["floor_bytes"]
        close = result["budget_bytes"] < 1.1 * result["floor_bytes"]
        verdict = "refused: below the floor" if below else "refused: no addresses found"
        return line + f"| | | | {verdict} |", below or close
    faults = faults_of(result)
    return line + (f"| {result['measured_peak_bytes'] / MIB:.1f} | {result['measured_peak_bytes'] / whole:.3f} "
                   f"| {result['time_ratio_to_eager']:.2f} | "
                   f"{'DIFFERS: ' + ', '.join(faults) if faults else 'the same'} |"), not faults


def check(tool, model, way):
    good = True
    floor = None
    for share in way.shares:
        result = run(tool, model, share, way)
        floor = floor or result["floor_bytes"]
        if share == way.shares[0]:
            activations = 1 - 2 * result["external_bytes"] / result["keep_all_peak_bytes"]
            print(f"| {model} {SIZES[model]} | {way.name or 'plain'} | {result['eager_peak_bytes'] / MIB:.1f} | | 1 "
                  f"| 1 | activations {activations:.0%}, floor {floor / result['keep_all_peak_bytes']:.0%} |")
        line, right = row(model, share, result)
        print(line, flush=True)
        good = good and right
    for per_cent in range(100, 111):
        result = run(tool, model, f"{floor * per_cent // 100}B", way)
        if result["feasible"]:
            break
    line, right = row(model, "floor" if per_cent == 100 else f"floor + {per_cent - 100} %", result)
    print(line, flush=True)
    return good and right and result["feasible"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tool")
    parser.add_argument("models", nargs="*", metavar="MODEL")
    parser.add_argument("--moves", metavar="FOLDER")
    given = parser.parse_args()
    for model in given.models:
        if model not in SIZES:
            parser.error(f"unknown model '{model}'; expected one of {', '.join(SIZES)}")
    print("| model | budget | MiB | measured MiB | of keep-all | time / plain | result |")
    print("|---|---|---:|---:|---:|---:|---|")
    good = [check(given.tool, model, way) for model in given.models or SIZES for way in ways(given.moves)]
    sys.exit(0 if all(good) else 1)


if __name__ == "__main__":
    main()
