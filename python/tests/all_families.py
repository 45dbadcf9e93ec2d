# SPDX-License-Identifier: Apache-2.0
"""Runs every family of families.py at 100 % and at 50 % of its plain memory, and prints a table.

    all_families.py [NAME ...] [--seconds-each 300] [--save results.jsonl]

The exit code is 1 if a family fails. `make test-families`.
"""

import argparse
import json
import os
import subprocess
import sys

from families import KINDS, RUN_PLAINLY, families

RUN_FAMILY = os.path.join(os.path.dirname(os.path.abspath(__file__)), "run_family.py")
BUDGETS = ("100%", "50%")


def run(name, budget, seconds):
    """The result of one run, a process of its own: a crash or a hang is the failure of one family."""
    command = [sys.executable, RUN_FAMILY, name, "--budget", budget]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        return {"failures": [f"not done after {seconds} s"]}
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if not lines:
        last = done.stderr.strip().splitlines()[-1:]
        return {"failures": [" ".join([f"ended with code {done.returncode}", *last])]}
    return json.loads(lines[-1])


def cell(result):
    if result["failures"]:
        return "FAILED"
    if result["family"] in RUN_PLAINLY:
        return "plain"
    share = f"{result['peak_share']:.0%}"
    return f"{share} (floor)" if result["budget"] == "floor" else share


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--seconds-each", type=float, default=300.0)
    parser.add_argument("--save", help="a file that gets one line of JSON per run")
    arguments = parser.parse_args()
    unknown = set(arguments.names) - families().keys()
    if unknown:
        parser.error(f"no family {', '.join(sorted(unknown))}; expected some of {', '.join(families())}")

    print(f"{'kind':<16} {'family':<18} {'plain MiB':>9} {'at 100%':>13} {'at 50%':>13} {'seconds':>8}", flush=True)
    failed = []
    count = 0
    for kind, members in KINDS.items():
        for name in members:
            if arguments.names and name not in arguments.names:
                continue
            results = [run(name, budget, arguments.seconds_each) for budget in BUDGETS]
            if arguments.save:
                with open(arguments.save, "a", encoding="utf-8") as file:
                    file.writelines(json.dumps({"family": name, **each}) + "\n" for each in results)
            count += 1
            failed += [(name, budget, each["failures"]) for budget, each in zip(BUDGETS, results) if each["failures"]]
            plain = max(each.get("plain_bytes", 0) for each in results) / 2**20
            seconds = sum(each.get("seconds", 0) for each in results)
            cells = " ".join(f"{cell(each):>13}" for each in results)
            print(f"{kind:<16} {name:<18} {plain:>9.1f} {cells} {seconds:>8.1f}", flush=True)
            if name in RUN_PLAINLY:
                print(f"{'':<16} {name} is run plainly: {RUN_PLAINLY[name]}")
    for name, budget, failures in failed:
        print(f"{name} at {budget}: {'; '.join(failures)}")
    print(f"{count} families, {len({name for name, *_ in failed})} with failures")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
