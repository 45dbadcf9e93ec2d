# SPDX-License-Identifier: Apache-2.0
"""remat sweep, on tiny models.

    sweep_test.py TOOL GRAPHS_DIR [unittest's own arguments]
"""

import csv
import json
import pathlib
import re
import signal
import subprocess
import time

import cli_fixture
from cli_fixture import BAR, ERROR, INTERRUPTED, USAGE, CliTest

RESNET = "resnet18 --image 64 --width 8"
QUICK = "--time-limit 0.5"


class SweepTest(CliTest):
    def check(self, sweep):
        for point in sweep["batches"]:
            if point["plain_estimated"]:
                self.assertIsNone(point["planned_budget_bytes"])
                self.assertFalse(point["planned_fits"])
            self.assertEqual(point["plain_fits"], point["plain_peak_bytes"] <= sweep["limit_bytes"])
            if point["planned_fits"]:
                self.assertLessEqual(point["floor_bytes"], point["planned_peak_bytes"])
                self.assertLessEqual(point["planned_peak_bytes"], sweep["limit_bytes"])
                self.assertLessEqual(point["planned_peak_bytes"], point["planned_budget_bytes"])
                self.assertAlmostEqual(point["planned_samples_per_second"], 1e9 * point["batch"] / point["planned_step_ns"])
            if not point["plain_fits"]:
                self.assertIsNone(point["plain_step_ns"])
        for point in sweep["frontier"]:
            if point["fits"]:
                self.assertLessEqual(point["peak_bytes"], point["budget_bytes"])
        # The largest batch is at least the largest that was tried and fits.
        plain = [point["batch"] for point in sweep["batches"] if point["plain_fits"]]
        planned = plain + [point["batch"] for point in sweep["batches"] if point["planned_fits"]]
        for how, fitting in [("plain", plain), ("planned", planned)]:
            batch, estimated = sweep[f"largest_{how}_batch"], sweep[f"largest_{how}_estimated"]
            self.assertGreaterEqual(batch, max(fitting, default=0))
            if not estimated:
                self.assertEqual(batch, max(fitting, default=0))
        self.assertGreaterEqual(sweep["largest_planned_batch"], sweep["largest_plain_batch"])

    def test_planned(self):
        text = self.done(f"sweep {RESNET} --batches 16,2,8 --limit 80% --budgets 100%,80% --strategy keep_all,mutwo,auto "
                         f"{QUICK} --json out --html page.html --csv tables")
        sweep = json.loads(self.read("out"))
        self.check(sweep)
        self.assertEqual([point["batch"] for point in sweep["batches"]], [2, 8, 16])
        self.assertEqual((sweep["frontier_batch"], sweep["measured"], sweep["limit_given"]), (16, False, True))
        # 80 % of what batch 16 needs: it fits with a plan only.
        self.assertFalse(sweep["batches"][2]["plain_fits"])
        self.assertTrue(sweep["largest_searched"])
        self.assertTrue(2 <= sweep["largest_plain_batch"] < 16 <= sweep["largest_planned_batch"])
        strategies = [point["strategy"] for point in sweep["frontier"]]
        self.assertEqual(strategies, ["keep_all"] * 2 + ["mutwo"] * 2 + ["auto"] * 2)
        by_point = {(point["strategy"], point["budget_bytes"]): point for point in sweep["frontier"]}
        for (strategy, budget), point in by_point.items():
            best = by_point["auto", budget]
            self.assertTrue(best["fits"])
            if point["fits"]:
                self.assertGreaterEqual(point["step_ns"], best["step_ns"])
        fits = [point["fits"] for point in sweep["frontier"]]
        self.assertEqual(fits[:2], [True, False])  # keep_all: within all of it, not within 80 %
        self.assertRegex(self.page_title("page.html"), r"\ATrade-off of resnet18, batch 16, ")
        for words in ["planned: op times", "does not fit", "with a plan", "inside a budget of", "planned inside half of the plain peak"]:
            self.assertIn(words, text)
        # The page has the numbers of the JSON; the tables too.
        data = re.search(r'<script type="application/json" id="data">(.*?)</script>', self.read("page.html"), re.DOTALL)[1]
        self.assertEqual(json.loads(data), sweep)
        with open(self.dir / "tables" / "batches.csv", newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        self.assertEqual([row["plain_peak_bytes"] for row in rows],
                         [str(point["plain_peak_bytes"]) for point in sweep["batches"]])

    def test_the_largest_batch_is_that_of_fit(self):
        """Nobody tried it: it is planned from the graphs of other sizes. `fit` runs it."""
        sweep = self.done_json(f"sweep {RESNET} --batches 2,4 --limit 12MiB --budgets 100% --strategy keep_all {QUICK} --threads 1")
        self.check(sweep)
        fit = self.done_json(f"fit {RESNET} --budget 12MiB --threads 1 --time-limit 0.5")
        for how in ["plain", "planned"]:
            self.assertTrue(sweep[f"largest_{how}_estimated"])
            self.assertAlmostEqual(sweep[f"largest_{how}_batch"], fit[how]["size"], delta=1 + 0.1 * fit[how]["size"])
        self.assertGreater(sweep["largest_planned_batch"], 4)
        self.assertIn(f"batch {sweep['largest_planned_batch'] + 1} does not fit", sweep["next_reason"])

    def test_one_batch_is_enough_for_the_largest(self):
        sweep = self.done_json(f"sweep {RESNET} --batches 3 --limit 12MiB --budgets 100% --strategy keep_all {QUICK} --threads 1")
        self.assertTrue(sweep["largest_searched"])
        self.assertGreater(sweep["largest_planned_batch"], 4)

    def test_measured_runs_the_largest_batch(self):
        sweep = self.done_json(f"sweep {RESNET} --batches 2,4 --limit 12MiB --budgets 100% --strategy keep_all {QUICK} --threads 1 "
                               "--measured --steps 1")
        self.check(sweep)
        tried = {point["batch"]: point for point in sweep["batches"]}
        self.assertGreater(len(tried), 2)
        self.assertFalse(sweep["largest_planned_estimated"])
        self.assertTrue(tried[sweep["largest_planned_batch"]]["planned_fits"])

    def test_measured(self):
        sweep = self.done_json(f"sweep {RESNET} --batches 2,4 --budgets 100%,80% --strategy keep_all,auto {QUICK} --measured "
                               "--steps 2 --threads 1")
        self.check(sweep)
        self.assertEqual((sweep["measured"], sweep["steps"], sweep["limit_given"]), (True, 2, False))
        for point in sweep["batches"]:
            self.assertGreater(point["plain_step_ns"], 0)
            self.assertGreater(point["planned_step_ns"], 0)

    def test_what_does_not_fit_into_this_machine_is_not_tried(self):
        """The largest was captured first, for the frontier, and the system ended the tool for lack of memory."""
        text = self.done(f"sweep {RESNET} --batches 1000000,2,8 --limit 50% --budgets 80% --strategy auto {QUICK} --json out --html page")
        sweep = json.loads(self.read("out"))
        self.check(sweep)
        self.assertEqual([point["plain_estimated"] for point in sweep["batches"]], [False, False, True])
        small, frontier, large = sweep["batches"]
        self.assertEqual(sweep["frontier_batch"], 8)
        self.assertEqual(sweep["limit_bytes"], frontier["plain_peak_bytes"] // 2)
        slope = (frontier["plain_peak_bytes"] - small["plain_peak_bytes"]) / 6
        self.assertAlmostEqual(large["plain_peak_bytes"] / (slope * 1e6), 1, delta=0.01)
        self.assertIn("more than this machine has left: it was not tried", large["fault"])
        self.assertRegex(text, r"(?m)^1000000 +about \d.* GiB \(does not fit\) .* not tried ")
        self.assertTrue(sweep["frontier"][0]["fits"])

    def test_nothing_fits_into_this_machine(self):
        sweep = self.done_json(f"sweep {RESNET} --batches 1000000 --limit 50% --budgets 80% --strategy auto {QUICK}")
        self.check(sweep)
        self.assertEqual((sweep["frontier_batch"], sweep["frontier"]), (0, []))
        self.assertTrue(sweep["batches"][0]["plain_estimated"])
        self.assertIn("resnet18", sweep["label"])

    def test_progress(self):
        *shown, left = self.progress_lines(f"sweep {RESNET} --batches 2,4 --budgets 100%,80% --strategy keep_all {QUICK} --threads 1")
        bars = [line for line in shown if re.match("sweep" + BAR, line)]
        done = [int(re.search(r"(\d+) %", line)[1]) for line in bars]
        self.assertEqual(done, sorted(done))
        self.assertGreater(done[-1], 50)
        for what in ["batch 2: capturing and measuring", "batch 4: planning inside", "keep_all inside", "largest batch:"]:
            self.assertTrue([line for line in bars if what in line], (what, shown))
        self.assertIn("largest batch that fits", left)

    def test_the_batch_of_the_frontier(self):
        sweep = self.done_json(f"sweep {RESNET} --batches 4 --batch 2 --budgets 100% --strategy keep_all {QUICK}")
        self.assertEqual((sweep["frontier_batch"], [point["batch"] for point in sweep["batches"]]), (2, [2, 4]))

    def test_a_limit_that_nothing_fits(self):
        sweep = self.done_json(f"sweep {RESNET} --batches 2 --limit 1KiB --budgets 1KiB --strategy auto {QUICK}")
        self.check(sweep)
        self.assertEqual((sweep["largest_plain_batch"], sweep["largest_planned_batch"]), (0, 0))
        self.assertIn("no plan fits", sweep["batches"][0]["fault"])
        self.assertFalse(sweep["frontier"][0]["fits"])

    def test_usage(self):
        for rest in ["", "nothing", "resnet18 --batches 0", "resnet18 --batches x", "resnet18 --budgets x",
                     "resnet18 --limit x", "resnet18 --strategy best", "resnet18 --steps 0", "resnet18 --html - --json -"]:
            with self.subTest(rest=rest):
                self.fails(USAGE, "sweep " + rest)
        self.assertIn("expected a multiple of 16", self.fails(ERROR, "sweep vit_small --image 20 --batches 1"))
        self.assertIn("cannot write", self.fails(ERROR, f"sweep {RESNET} --batches 2 --budgets 100% --strategy keep_all "
                                                        "--html nowhere/page"))

    def test_an_interrupt_leaves_what_there_is(self):
        # Hours of it: what comes first is done within seconds.
        process = self.start(f"sweep {RESNET} --batches 2 --budgets {','.join(f'{s}%' for s in range(60, 100))} "
                             "--strategy auto,search --time-limit 1000 --json out --html page.html", stdin=subprocess.DEVNULL)
        threads = pathlib.Path(f"/proc/{process.pid}/task")
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and process.poll() is None and len(list(threads.iterdir())) < 2:
            time.sleep(0.05)  # until LibTorch computes
        time.sleep(5)
        process.send_signal(signal.SIGINT)
        output, error = process.communicate(timeout=240)
        self.assertEqual((process.returncode, error), (INTERRUPTED, b""))
        self.assertIn(b"interrupted", output)
        sweep = json.loads(self.read("out"))
        self.assertTrue(sweep["interrupted"])
        self.assertLess(len(sweep["frontier"]), 80)
        self.assertIn("</html>", self.read("page.html"))

    def test_an_interrupt_before_the_first_point(self):
        """The page was one of "Trade-off: ", with a limit of 0 B."""
        process = self.start("sweep resnet50 --batches 8 --limit 50% --time-limit 1000 --json out --html page", stdin=subprocess.DEVNULL)
        threads = pathlib.Path(f"/proc/{process.pid}/task")
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and process.poll() is None and len(list(threads.iterdir())) < 2:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        output, error = process.communicate(timeout=240)
        self.assertEqual((process.returncode, error), (INTERRUPTED, b""))
        sweep = json.loads(self.read("out"))
        self.assertEqual((sweep["interrupted"], sweep["batches"], sweep["limit_bytes"]), (True, [], 0))
        self.assertRegex(self.page_title("page"), r"\ATrade-off of resnet50, batch 8, ")
        self.assertNotIn(b"limit", output)


if __name__ == "__main__":
    cli_fixture.main()
