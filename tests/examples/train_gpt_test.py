# SPDX-License-Identifier: Apache-2.0
"""examples/train_gpt: it learns, inside its budget, with the losses of the plain loop.

    train_gpt_test.py TRAIN_GPT [unittest's own arguments]
"""

import os
import pathlib
import pty
import re
import signal
import subprocess
import sys
import tempfile
import unittest

PROGRAM = ""
# Everything kept takes 19 MiB.
SMALL = "--width 64 --layers 3 --batch 16 --seq 64 --rate 3e-3 --sample 40 --print-every 10".split()
BUDGET = ["--budget", "14MiB"]


class TrainGptTest(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.dir = pathlib.Path(scratch.name)

    def run_program(self, *arguments):
        return subprocess.run([PROGRAM, *SMALL, *arguments], cwd=self.dir, timeout=600,
                              capture_output=True, text=True, errors="replace")

    def train(self, steps, *arguments):
        """The losses, as they are written, and what is printed."""
        done = self.run_program("--steps", str(steps), "--losses", "losses", *arguments)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return (self.dir / "losses").read_text().split(), done.stdout

    def test_learns_in_its_budget_with_the_losses_of_the_plain_loop(self):
        plain, _ = self.train(40, "--plain")
        planned, text = self.train(40, *BUDGET)
        self.assertEqual(len(plain), 40)
        self.assertEqual(planned, plain)
        values = [float.fromhex(loss) for loss in plain]
        self.assertGreater(values[0], 5.0)  # log 256 is 5.5
        self.assertLess(sum(values[-5:]) / 5, 0.7 * values[0])

        memory = re.search(r"everything kept ([\d.]+) MiB, budget 14 MiB, reserved ([\d.]+) MiB, "
                           r"peak ([\d.]+) MiB", text)
        self.assertIsNotNone(memory, text)
        kept, reserved, peak = map(float, memory.groups())
        self.assertGreater(kept, 1.3 * 14)  # the plain step does not fit
        self.assertLessEqual(peak, reserved)
        self.assertLessEqual(reserved, 14)
        self.assertRegex(text, r"step    40: loss \d\.\d+, \d+ tokens/s, peak [\d.]+ MiB\n")

    def test_goes_on_from_a_checkpoint_as_if_it_had_not_stopped(self):
        whole, _ = self.train(24, "--plain")
        for kind in [["--plain"], BUDGET]:
            with self.subTest(kind=kind):
                file = f"point{len(kind)}"
                (self.dir / "losses").unlink()
                first, _ = self.train(11, *kind, "--checkpoint", file)
                self.assertEqual(first, whole[:11])
                both, text = self.train(24, *kind, "--checkpoint", file)
                self.assertIn(f"{file}: going on after step 11", text)
                self.assertEqual(both, whole)

    def end_with(self, number, after, *arguments):
        """Starts a run without an end, which gets the signal after so many steps. Its exit code and what it prints."""
        command = [PROGRAM, *SMALL, "--print-every", "1", "--losses", "losses", "--checkpoint", "point",
                   "--steps", "1000000", *arguments]
        with subprocess.Popen(command, cwd=self.dir, stdout=subprocess.PIPE, text=True) as run:
            text = ""
            for line in run.stdout:
                text += line
                if line.startswith(f"step {after:5}:"):
                    run.send_signal(number)
            return run.wait(), text

    def test_an_interrupted_run_goes_on_from_the_step_that_it_ended(self):
        code, text = self.end_with(signal.SIGINT, 6, *BUDGET)
        self.assertEqual(code, 130, text)
        ended = int(re.search(r"interrupted after step (\d+)\n\Z", text).group(1))
        self.assertGreaterEqual(ended, 6)
        losses, text = self.train(ended + 4, *BUDGET, "--checkpoint", "point")
        self.assertIn(f"point: going on after step {ended}\n", text)
        (self.dir / "losses").unlink()
        self.assertEqual(losses, self.train(ended + 4, "--plain")[0])

    def test_a_killed_run_goes_on_from_its_last_checkpoint(self):
        code, _ = self.end_with(signal.SIGKILL, 7, "--plain", "--checkpoint-every", "3")
        self.assertEqual(code, -signal.SIGKILL)
        losses, text = self.train(40, "--plain", "--checkpoint", "point")
        ended = int(re.search(r"point: going on after step (\d+)\n", text).group(1))
        self.assertGreaterEqual(ended, 6)
        self.assertEqual(ended % 3, 0)
        (self.dir / "losses").unlink()
        self.assertEqual(losses, self.train(40, "--plain")[0])

    def test_a_budget_may_be_a_share_of_what_the_plain_step_needs(self):
        losses, text = self.train(4, "--budget", "70%")
        kept, budget = re.search(r"everything kept ([\d.]+) MiB, budget ([\d.]+) MiB", text).groups()
        self.assertAlmostEqual(float(budget), 0.7 * float(kept), delta=0.02 * float(kept))
        self.assertEqual(losses, self.train(4, "--plain")[0])

    def test_the_first_recording_counts_ops_without_knowing_how_many_there_are(self):
        ours, its = pty.openpty()
        with subprocess.Popen([PROGRAM, *SMALL, *BUDGET, "--steps", "3"], cwd=self.dir, stdout=subprocess.DEVNULL,
                              stderr=its) as run:
            os.close(its)
            shown = b""
            try:
                while part := os.read(ours, 65536):
                    shown += part
            except OSError:  # the program has ended
                pass
            os.close(ours)
            self.assertEqual(run.wait(), 0)
        lines = [line for line in shown.decode().splitlines() if line.startswith("recording") and "ops" in line]
        self.assertRegex(lines[0], r"\Arecording \d+ ops, .* in a file\Z")
        self.assertRegex(lines[-1], r"\Arecording \d+ of \d+ ops, .* in a file\Z")

    def test_another_text_gives_other_losses(self):
        (self.dir / "text").write_text("abcdefgh" * 200)
        losses, text = self.train(30, "text", "--plain")
        self.assertLess(float.fromhex(losses[-1]), 1.0)
        self.assertIn("abcdefgh"[:3], text)

    def test_says_what_is_wrong(self):
        (self.dir / "short").write_text("abc")
        (self.dir / "no_checkpoint").write_text("abc")
        (self.dir / "few_losses").write_text("0x1p+0\n")
        self.train(2, "--plain", "--checkpoint", "point")
        for code, words, arguments in [
                (1, "the text is shorter than a sequence", ["short"]),
                (1, "expected a multiple of 32", ["--width", "50"]),
                (1, "point was made with width 64, layers 3",
                 ["--checkpoint", "point", "--layers", "2"]),
                (1, "train_gpt: ", ["--checkpoint", "no_checkpoint"]),
                (1, "cannot write nowhere/losses: No such file", ["--losses", "nowhere/losses"]),
                (1, "few_losses has the losses of 1 steps; expected those of the 2 before",
                 ["--losses", "few_losses", "--checkpoint", "point"]),
                (1, "expected more than 0", ["--budget", "0%"]),
                (1, "expected a positive number", ["--budget", "0"]),
                (3, "no plan fits the budget of 1 MiB", ["--budget", "1MiB"])]:
            with self.subTest(arguments=arguments):
                done = self.run_program("--steps", "4", *arguments)
                self.assertEqual(done.returncode, code, done.stderr)
                self.assertIn(words, done.stderr)


if __name__ == "__main__":
    PROGRAM = os.path.abspath(sys.argv.pop(1))
    unittest.main()
