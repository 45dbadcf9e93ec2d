# SPDX-License-Identifier: Apache-2.0
"""remat fit: the largest size that trains inside a budget. Tiny models.

    fit_test.py TOOL GRAPHS_DIR [unittest's own arguments]
"""

import csv
import json

import cli_fixture
from cli_fixture import ERROR, INFEASIBLE, MIB, USAGE, CliTest

RESNET = "resnet18 --image 32 --width 8 --threads 1 --time-limit 0.5"
GPT = "gpt2_small --layers 1 --width 16 --threads 1 --time-limit 0.5"


class FitTest(CliTest):
    found = None  # of RESNET in 8 MiB: what is printed, and the JSON

    def resnet_in_8_mib(self):
        if FitTest.found is None:
            text = self.done(f"fit {RESNET} --budget 8MiB --json out")
            FitTest.found = text, json.loads(self.read("out"))
        return FitTest.found

    def check(self, fit, budget):
        """What every answer must be; returns the sizes of remat and of the plain step."""
        self.assertEqual((fit["budget_bytes"], fit["feasible"]), (budget, True))
        planned, plain = fit["planned"], fit["plain"]
        self.assertEqual(planned["measured_peak_bytes"], planned["predicted_peak_bytes"])
        self.assertLessEqual(planned["measured_peak_bytes"], planned["reserved_bytes"])
        self.assertLessEqual(planned["reserved_bytes"], budget)
        self.assertLessEqual(plain["measured_peak_bytes"], budget)
        self.assertGreater(planned["step_ns"], 0)
        return planned["size"], plain["size"]

    def test_the_largest_batch(self):
        _, fit = self.resnet_in_8_mib()
        planned, plain = self.check(fit, 8 * MIB)
        self.assertGreater(planned, plain)
        self.assertEqual((fit["along"], fit["model"], fit["image"]), ("batch", "resnet18", 32))
        self.assertNotIn("batch", fit)
        self.assertEqual(fit["next"]["size"], planned + 1)
        self.assertAlmostEqual(fit["planned"]["ns_per_sample"] * planned, fit["planned"]["step_ns"],
                               delta=planned)

        # `run` agrees: the size that was found trains in the budget, and its plain step does not.
        run = self.done_json(f"run {RESNET} --budget 8MiB --batch {planned} --steps 1")
        self.assertEqual(run["feasible"], True)
        self.assertGreater(run["eager_peak_bytes"], 8 * MIB)

    def test_the_plain_limit(self):
        _, plain = self.check(self.resnet_in_8_mib()[1], 8 * MIB)
        profile = self.done_json(f"profile {RESNET.replace(' --time-limit 0.5', '')} --batch {plain + 1}")
        self.assertGreater(profile["eager_peak_bytes"], 0.99 * 8 * MIB)

    def test_text(self):
        text, _ = self.resnet_in_8_mib()
        for words in ["resnet18, image 32, width 8, f32, optimizer none, 1 thread; budget 8 MiB",
                      "largest batch", "predicted peak", "measured peak", "per sample",
                      "plain LibTorch", "remat", "times the batch of plain LibTorch",
                      "does not fit: ", "plans made"]:
            self.assertIn(words, text)

    def test_the_longest_sequence(self):
        planned, plain = self.check(
            self.done_json(f"fit {GPT} --budget 64MiB --along seq --batch 2"), 64 * MIB)
        self.assertGreaterEqual(planned, plain)
        self.assertEqual(planned % 16, 0)

    def test_the_largest_image(self):
        fit = self.done_json("fit resnet18 --batch 2 --width 8 --budget 8MiB --along image --threads 1 "
                             "--time-limit 0.5")
        planned, plain = self.check(fit, 8 * MIB)
        self.assertGreater(planned, plain)
        self.assertEqual(planned % 32, 0)

    def test_the_update_inside_counts_its_state(self):
        fit = self.done_json(f"fit {RESNET} --budget 8MiB --optimizer adamw")
        self.assertEqual(fit["optimizer"], "adamw")
        self.assertLess(self.check(fit, 8 * MIB)[0], self.resnet_in_8_mib()[1]["planned"]["size"])

    def test_limits_of_the_search(self):
        fit = self.done_json(f"fit {RESNET} --budget 100MiB --largest 10 --multiple 4 --csv tables")
        with open(self.dir / "tables" / "sizes.csv", newline="", encoding="utf-8") as file:
            rows = {row["method"]: row for row in csv.DictReader(file)}
        for how in ["plain", "planned"]:
            self.assertEqual({key: int(rows[how][key]) for key in fit[how]}, fit[how])
        self.assertEqual(self.check(fit, 100 * MIB), (8, 8))
        self.assertNotIn("next", fit)

    def test_less_time_to_pay_is_a_smaller_batch(self):
        cheap, _ = self.check(
            self.done_json(f"fit {RESNET} --budget 8MiB --most-time 1.001"), 8 * MIB)
        self.assertLess(cheap, self.resnet_in_8_mib()[1]["planned"]["size"])

    def test_infeasible_says_the_floor_and_still_writes_json(self):
        error = self.fails(INFEASIBLE, f"fit {RESNET} --budget 1MiB --json out")
        self.assertRegex(error, r"\Aremat fit: not even the smallest batch fits the budget of 1 MiB: "
                                r"the least known peak is [\d.]+ MiB; raise --budget\Z")
        fit = json.loads(self.read("out"))
        self.assertEqual(fit["feasible"], False)
        self.assertGreater(fit["floor_bytes"], MIB)

    def test_usage(self):
        for rest, words in [
                ("", "model is required"), ("resnet18", "--budget is required"),
                ("resnt18 --budget 1GiB", "did you mean 'resnet18'?"),
                ("resnet18 --budget abc", "--budget"), ("resnet18 --budget 50%", "expected bytes"),
                ("resnet18 --budget 1GiB --batch 4", "--batch: is what is searched for"),
                ("gpt2_small --budget 1GiB --along seq --seq 4", "--seq: is what is searched for"),
                ("resnet18 --budget 1GiB --along seq", "resnet18 has no size 'sequence'"),
                ("resnet18 --budget 1GiB --along depth", "--along"),
                ("resnet18 --budget 1GiB --most-time 0.5", "--most-time"),
                ("resnet18 --budget 1GiB --optimizer lion", "--optimizer")]:
            with self.subTest(rest=rest):
                error = self.fails(USAGE, "fit " + rest)
                self.assertTrue(error.startswith("remat fit: "), error)
                self.assertIn(words, error)
        self.assertEqual(self.fails(ERROR, "fit resnet18 --budget 1GiB --seq 8"),
                         "remat fit: resnet18 has no size 'sequence'; it has batch, image, width")

    def test_help(self):
        text = self.done("fit --help")
        for word in "MODEL --budget --along --optimizer --most-time --multiple --smallest --largest --json --csv".split():
            self.assertIn(word, text)


if __name__ == "__main__":
    cli_fixture.main()
