# SPDX-License-Identifier: Apache-2.0
"""remat beside what people use today: one process per method, asked in turn for one training step at a time.

Usage: python bench/peers/peers.py RESULTS.jsonl [--models a,b] [--rounds 5] [--small] [--only METHOD,...]
                                [--minutes 45]

Appends one JSON line per model and prints its table; a model that is in the file already is skipped, so a run
that was stopped goes on where it was. Nothing else should run meanwhile. `table.py` makes the page and chart.
"""

import argparse
import glob
import json
import os
import pathlib
import platform
import select
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

import table

HERE = pathlib.Path(__file__).parent
MODELS = ["resnet50", "resnet152", "bert", "gpt2", "llama", "vit", "convnext", "unet"]
REFERENCE = "plain"  # with tcmalloc: the honest baseline
RIVALS = [
    "plain@malloc",
    "plain@hugepages",
    "checkpoint",
    "checkpoint_segments",
    "checkpoint_half",
    "selective",
    "compile",
    "compile=0.5",
]
SHARES = [50, 33]  # percent of the plain peak
SETUP_SECONDS = 600
COMPILE_SECONDS = 240
STEP_SECONDS = 120
FLOOR_SLACK = 1.02  # another recording measures other times, and the lowest plan found may differ


class Worker:
    """A process that runs one method; see worker.py. After an error it is gone, and its row says why."""

    def __init__(self, model, method, small, environment):
        self.row = {"method": method, "steps": []}
        name, _, self.malloc = method.partition("@")
        self._name = name
        variables = dict(environment)
        if self.malloc == "malloc":
            variables.pop("LD_PRELOAD", None)
        if self.malloc == "hugepages":
            variables["THP_MEM_ALLOC_ENABLE"] = "1"
        command = [sys.executable, str(HERE / "worker.py"), model, name] + (["--small"] if small else [])
        self._errors = tempfile.TemporaryFile()
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=variables,
            start_new_session=True,  # so that compile's own processes end with it
        )

    @property
    def alive(self):
        return self._process is not None

    def setup(self):
        limit = COMPILE_SECONDS if self._name.startswith("compile") else SETUP_SECONDS
        answer = self._ask("setup", limit)
        self.row.update(answer)

    def step(self):
        answer = self._ask("step", STEP_SECONDS)
        if "error" in answer:
            self.row["error"] = answer["error"]
        else:
            self.row["steps"].append(answer)

    def close(self):
        if self._process is None:
            return
        try:
            self._process.stdin.write(b"quit\n")
            self._process.stdin.flush()
            self._process.wait(10)
        except (OSError, subprocess.TimeoutExpired):
            pass
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self._process.wait()
        self._process = None

    def _ask(self, command, seconds):
        answer = self._exchange(command, seconds)
        if "error" in answer:
            self.close()
        return answer

    def _exchange(self, command, seconds):
        try:
            self._process.stdin.write(command.encode() + b"\n")
            self._process.stdin.flush()
        except OSError:
            return self._ended()
        if not select.select([self._process.stdout], [], [], seconds)[0]:
            return {"error": f"{command} took more than {seconds} s"}
        line = self._process.stdout.readline()
        return json.loads(line) if line else self._ended()

    def _ended(self):
        code = self._process.wait()
        self._errors.seek(0)
        last = self._errors.read().decode(errors="replace").strip().splitlines()[-1:] or [""]
        return {"error": f"the process ended with {code}: {last[0][:200]}"}


def available_bytes():
    with open("/proc/meminfo") as info:
        for line in info:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    raise RuntimeError("/proc/meminfo has no MemAvailable")


class Comparison:
    """All methods on one model. Workers live together as long as there is memory; when it gets short, those
    that are there are measured and closed, and the reference goes on with the next ones."""

    def __init__(self, model, arguments, environment):
        self._model = model
        self._arguments = arguments
        self._environment = environment
        self._reference = None
        self._group = []
        self._order = {}  # id(row): when it was started
        self._floors = {}  # what remat said it needs at least, by malloc
        self.rows = []

    def run(self):
        self._reference = self._start(REFERENCE)
        if not self._reference.alive:
            raise SystemExit(f"{self._model}: the plain step failed: {self._reference.row['error']}")
        for method in self._wanted(RIVALS):
            self._add(method)
        for name, budget, malloc in self._remat_budgets():
            self._add_remat(name, budget, malloc)
        self._measure()
        self._reference.close()
        return sorted(self.rows, key=lambda row: self._order[id(row)])

    def _wanted(self, names):
        only = self._arguments.only
        return [name for name in names if only is None or name in only]

    def _start(self, method):
        say(f"{self._model}: {method}")
        worker = Worker(self._model, method, self._arguments.small, self._environment)
        self._order[id(worker.row)] = len(self._order)
        worker.setup()
        if "error" in worker.row:
            say(f"{self._model}: {method}: {worker.row['error']}")
        return worker

    def _add(self, method):
        # A first call of remat needs the plain peak and copies of what the step writes.
        if self._group and available_bytes() < 3 * self._reference.row["peak_bytes"] + (1 << 30):
            self._measure()
        worker = self._start(method)
        if worker.alive:
            self._group.append(worker)
        else:
            self.rows.append(worker.row)
        return worker

    def _add_remat(self, name, budget, malloc):
        """One row. A budget below the floor becomes the floor; several such budgets, one row."""
        floor = self._floors.get(malloc, 0)
        worker = None
        if budget >= floor:
            worker = self._add(f"remat={budget}{malloc}")
            floor = worker.row.get("floor_bytes", 0)
        if floor and malloc not in self._floors and (worker is None or not worker.alive):
            self._floors[malloc] = floor
            self.rows.remove(worker.row)
            worker = self._add(f"remat={int(floor * FLOOR_SLACK)}{malloc}")
            worker.row["at_floor"] = True
        if worker is not None:
            worker.row["budget_bytes"] = budget
            worker.row["method"] = name

    def _remat_budgets(self):
        """[(name, bytes, malloc)]: the shares of the plain peak, and every rival's peak. One plan stands for
        all rivals that use up to 5 % more than its budget."""
        plain = self._reference.row["peak_bytes"]
        budgets = {f"remat {share} %": plain * share // 100 for share in SHARES}
        rows = self.rows + [worker.row for worker in self._group]
        rivals = [row for row in rows if "error" not in row and not row["method"].startswith("plain")]
        for row in sorted(rivals, key=lambda row: row["peak_bytes"]):
            peak = row["peak_bytes"]
            if peak < 0.97 * plain and not any(0.95 * peak <= each <= peak for each in budgets.values()):
                budgets[f"remat at {row['method']}"] = peak
        wanted = self._wanted(budgets) if self._arguments.only else list(budgets)
        found = [(name, budgets[name], "") for name in wanted]
        if found:
            found.append((f"{found[0][0]}@malloc", found[0][1], "@malloc"))
        return found

    def _measure(self):
        """A B C A B C ..., each round beginning with another one."""
        workers = [self._reference, *self._group]
        first = len(self._reference.row["steps"])
        for turn in range(self._arguments.rounds):
            say(f"{self._model}: round {turn + 1} of {self._arguments.rounds}, {len(workers)} methods")
            shift = turn % len(workers)
            for worker in workers[shift:] + workers[:shift]:
                if worker.alive:
                    worker.step()
            if not self._reference.alive:
                raise SystemExit(f"{self._model}: the plain step failed: {self._reference.row['error']}")
        base = self._reference.row["steps"][first:]
        for worker in workers:
            self._finish(worker.row, base)
        for worker in self._group:
            worker.close()
            self.rows.append(worker.row)
        self._group = []
        if self._reference.row not in self.rows:
            self.rows.insert(0, self._reference.row)

    def _finish(self, row, base):
        steps = row["steps"]
        if not steps:
            return
        pairs = list(zip(steps[-len(base) :], base, strict=False))  # the reference was in earlier groups too
        row["resident_bytes"] = max(step["resident_bytes"] for step in steps)
        for unit in ("wall", "cpu"):
            row[f"{unit}_seconds"] = statistics.median(step[unit] for step in steps)
            row[f"{unit}_ratio"] = statistics.median(step[unit] / other[unit] for step, other in pairs)
        row["setup_seconds"] = max(0.0, row["first_seconds"] - 2 * row["wall_seconds"])
        row["equal"] = {
            name: value == self._reference.row["digests"][name] for name, value in row["digests"].items()
        }


def say(text):
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def tcmalloc_path():
    found = sorted(glob.glob("/usr/lib/*/libtcmalloc_minimal.so.4") + glob.glob("/usr/lib*/libtcmalloc_minimal.so.4"))
    if not found:
        raise SystemExit("tcmalloc is needed for the honest baseline: apt-get install libtcmalloc-minimal4")
    return found[0]


def machine():
    with open("/proc/cpuinfo") as info:
        names = [line.partition(":")[2].strip() for line in info if line.startswith("model name")]
    return f"{names[0] if names else platform.machine()}, {os.cpu_count()} cores"


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("results", type=pathlib.Path)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--minutes", type=float, help="begin no other model after so many")
    parser.add_argument("--small", action="store_true", help="tiny models, to try the programs out")
    parser.add_argument("--only", type=lambda text: text.split(","), help="these methods beside the plain one")
    return parser.parse_args()


def main():
    arguments = parse_arguments()
    earlier = table.read_results(arguments.results) if arguments.results.exists() else []
    if any(entry["small"] != arguments.small for entry in earlier):
        raise SystemExit(f"{arguments.results} has results of the other size (--small); give another file")
    done = {entry["model"] for entry in earlier}
    threads = str(os.cpu_count())
    base = {
        **os.environ,
        "LD_PRELOAD": tcmalloc_path(),
        "OMP_NUM_THREADS": threads,
        "OMP_WAIT_POLICY": "PASSIVE",  # a waiting thread is not CPU time of the method
        "TOKENIZERS_PARALLELISM": "false",
    }
    began = time.time()
    for model in arguments.models.split(","):
        if arguments.minutes is not None and time.time() - began > 60 * arguments.minutes:
            say(f"{model}: no time left; the same command goes on with it")
            break
        if model in done:
            say(f"{model}: done already")
            continue
        cache = tempfile.mkdtemp(prefix="peers_compile_")
        start = time.time()
        try:
            rows = Comparison(model, arguments, {**base, "TORCHINDUCTOR_CACHE_DIR": cache}).run()
        finally:
            shutil.rmtree(cache, ignore_errors=True)
        entry = {
            "model": model,
            "small": arguments.small,
            "rounds": arguments.rounds,
            "machine": machine(),
            "seconds": time.time() - start,
            "rows": rows,
        }
        with open(arguments.results, "a") as file:
            file.write(json.dumps(entry) + "\n")
        print(table.model_table(entry), flush=True)


if __name__ == "__main__":
    main()
