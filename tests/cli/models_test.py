# SPDX-License-Identifier: Apache-2.0
"""The commands that need LibTorch: models, profile, run, and plan on a model. Tiny sizes.

    models_test.py TOOL GRAPHS_DIR [unittest's own arguments]
"""

import json

import cli_fixture
from cli_fixture import ERROR, INFEASIBLE, USAGE, CliTest

RESNET = "resnet18 --batch 16 --image 64 --width 8"
GPT = "gpt2_small --batch 2 --seq 12 --layers 2 --width 16"
ZOO = ["resnet18", "resnet50", "resnet152", "bert_base", "gpt2_small", "gpt2_small_fused",
       "vit_small", "unet", "convnext_tiny", "lstm_lm", "mlp_mixer"]


class HelpTest(CliTest):
    def test_help_names_every_option(self):
        sizes = "--batch --image --seq --layers --width --dtype --threads"
        expected = {
            "": "models profile plan run",
            "models": "--json",
            "profile": f"MODEL {sizes} --depth --rows --graph --html --json",
            "plan": f"GRAPH|MODEL {sizes}",
            "run": f"MODEL {sizes} --budget --steps --strategy --compare --verify --seed --json "
                   "checkpoint auto 50%",
        }
        for command, words in expected.items():
            text = self.done(f"{command} --help")
            for word in words.split():
                self.assertIn(word, text, command)


class ModelsTest(CliTest):
    def test_one_line_each(self):
        lines = self.done("models").splitlines()
        self.assertEqual([line.split()[0] for line in lines], ZOO)
        for line in lines:
            self.assertRegex(line, r"\A\w+ +[\d.]+ M  batch \d+, .*  https://\S+\Z")
        self.assertIn("25.6 M", lines[1])

    def test_json(self):
        models = self.done_json("models")["models"]
        self.assertEqual([model["model"] for model in models], ZOO)
        for model in models:
            self.assertEqual(set(model), {"model", "description", "paper", "parameters",
                                          "published_parameters", "defaults"})
            self.assertGreaterEqual(model["defaults"]["batch"], 1)


class BadInputTest(CliTest):
    def test_an_unknown_model_is_answered_with_the_nearest(self):
        for command in ["profile resnt50", "run resnt50 --budget 50%"]:
            self.assertIn("there is no model 'resnt50'; did you mean 'resnet50'?",
                          self.fails(USAGE, command))
        self.assertIn("cannot read resnt50: No such file or directory; there is no model 'resnt50'; "
                      "did you mean 'resnet50'?", self.fails(ERROR, "plan resnt50 --budget 50%"))

    def test_sizes_that_are_none(self):
        for flag in ["--batch", "--image", "--seq", "--layers", "--width", "--threads"]:
            for value in ["0", "-1", "x", "1e3", "99999999999999999999"]:
                for command in ["profile resnet18", "plan resnet18 --budget 50%",
                                "run resnet18 --budget 50%"]:
                    with self.subTest(flag=flag, value=value, command=command):
                        self.assertIn(flag, self.fails(USAGE, f"{command} {flag}={value}"))
                if flag != "--batch":
                    break  # the check is the same for all; starting the tool takes a while
        self.assertIn("--dtype", self.fails(USAGE, "profile resnet18 --dtype f16"))

    def test_sizes_that_the_model_cannot_take(self):
        self.assertEqual(self.fails(ERROR, "run resnet18 --budget 50% --seq 8"),
                         "remat run: resnet18 has no size 'sequence'; it has batch, image, width")
        self.assertIn("vit_small: image 20; expected a multiple of 16",
                      self.fails(ERROR, "profile vit_small --image 20"))

    def test_sizes_are_not_for_graph_files(self):
        self.assertIn("net is a graph file, and its sizes are fixed",
                      self.fails(ERROR, "plan net --budget 50% --batch 2"))

    def test_run_usage(self):
        for rest in ["", "resnet18", "--budget 50%", "resnet18 --budget abc",
                     "resnet18 --budget 50%,60%", "resnet18 --budget 50% --steps 0",
                     "resnet18 --budget 50% --steps x", "resnet18 --budget 50% --compare best",
                     "resnet18 --budget 50% --strategy checkpoint", "resnet18 --budget 50% --seed -1"]:
            with self.subTest(rest=rest):
                error = self.fails(USAGE, "run " + rest)
                self.assertTrue(error.startswith("remat run: "), error)
                self.assertTrue(error.endswith("; see remat run --help"), error)

    def test_profile_writes_one_thing_to_standard_output(self):
        self.fails(USAGE, "profile resnet18 --graph - --json -")

    def test_a_batch_that_no_machine_holds(self):
        error = self.fails(ERROR, "run resnet18 --budget 50% --batch 1000000000 --image 4096")
        self.assertLess(len(error), 400)


class ProfileTest(CliTest):
    def test_breakdowns_sum_to_the_peak(self):
        profile = self.done_json(f"profile {RESNET} --threads 1 --graph graph --html page")
        whole = profile["keep_all_peak_bytes"]
        for part in ["by_role", "by_phase", "by_layer"]:
            self.assertEqual(sum(row["peak_bytes"] for row in profile[part]), whole, part)
        for part in ["by_phase", "by_layer", "by_kind"]:
            self.assertEqual(sum(row["forward_ns"] + row["backward_ns"] for row in profile[part]),
                             profile["op_time_ns"], part)
            self.assertEqual(sum(row["ops"] for row in profile[part]), profile["op_count"], part)
        self.assertIn("layer1.0", [row["name"] for row in profile["by_layer"]])
        self.assertEqual((profile["model"], profile["batch"], profile["image"], profile["threads"]),
                         ("resnet18", 16, 64, 1))
        for key in ["eager_peak_bytes", "step_ns", "rounds"]:
            self.assertGreater(profile[key], 0)

        plan = self.done_json("plan graph --budget 100% --strategy keep_all")
        self.assertEqual((plan["keep_all_peak_bytes"], plan["keep_all_time_ns"]),
                         (whole, profile["op_time_ns"]))

        page = self.read("page")
        self.assertIn("<svg", page)
        for loaded in ["http:", "https:", "<script", "src=", "@import", "<link"]:
            self.assertNotIn(loaded, page)

    def test_text(self):
        text = self.done(f"profile {GPT} --rows 3")
        for words in ["gpt2_small, batch 2, sequence 12, layers 2, width 16, f32", "everything kept",
                      "plain LibTorch", "whole replayed step", "activation", "forward", "layer",
                      "kind of op", "aten::", "more)"]:
            self.assertIn(words, text)

    def test_bf16(self):
        profile = self.done_json(f"profile {GPT} --dtype bf16")
        self.assertIn("aten::_to_copy", [row["name"] for row in profile["by_kind"]])


class PlanModelTest(CliTest):
    def test_plan_of_a_model_is_that_of_its_graph(self):
        plan = self.done_json(f"plan {RESNET} --budget 70% --schedule out")
        self.assertEqual((plan["graph"], plan["feasible"]), ("resnet18", True))
        self.assertLessEqual(plan["peak_bytes"], plan["budget_bytes"])
        self.assertTrue(self.read("out").startswith("remat-schedule 1\n"))

    def test_a_file_of_a_models_name_is_the_file(self):
        self.write("resnet18", self.read("net"))
        self.assertEqual(self.done_json("plan resnet18 --budget 100%")["op_count"], 17)


class RunTest(CliTest):
    KEYS = {
        "model": str, "batch": int, "dtype": str, "threads": int, "parameters": int,
        "strategy": str, "feasible": bool, "budget_bytes": int, "keep_all_peak_bytes": int,
        "floor_bytes": int, "predicted_peak_bytes": int, "measured_peak_bytes": int,
        "reserved_bytes": int, "eager_peak_bytes": int, "time_ratio_to_eager": float,
        "rounds": int, "bit_identical": dict, "verified": bool,
    }

    def check(self, run):
        for key, kind in self.KEYS.items():
            self.assertIsInstance(run[key], kind, key)
        self.assertEqual(run["bit_identical"],
                         {"loss": True, "gradients": True, "buffers": True, "rng": True})
        self.assertEqual(run["measured_peak_bytes"], run["predicted_peak_bytes"])
        self.assertLessEqual(run["predicted_peak_bytes"], run["reserved_bytes"])
        self.assertLessEqual(run["reserved_bytes"], run["budget_bytes"])
        self.assertEqual(run["outside_allocations"], 0)
        self.assertGreater(run["time_ratio_to_eager"], 0)
        self.assertGreater(run["eager_peak_bytes"], 0)

    def test_the_same_bits_inside_the_budget(self):
        for model in [RESNET, GPT, GPT + " --dtype bf16"]:
            with self.subTest(model=model):
                run = self.done_json(f"run {model} --budget 75% --steps 3 --verify")
                self.check(run)
                self.assertEqual((run["rounds"], run["verified"]), (3, True))
                self.assertNotIn("compared", run)
                self.assertLess(run["measured_peak_bytes"], run["eager_peak_bytes"])
                self.assertLess(run["last_loss"], 20)

    def test_compare(self):
        run = self.done_json(f"run {RESNET} --budget 110% --steps 2 --threads 1 "
                             "--compare checkpoint,keep_all,recompute_all")
        self.check(run)
        self.assertEqual(run["threads"], 1)
        compared = {method["method"]: method for method in run["compared"]}
        self.assertEqual(list(compared), ["checkpoint", "keep_all", "recompute_all"])
        for name, method in compared.items():
            self.assertEqual(set(method["bit_identical"].values()), {True}, name)
            self.assertGreater(method["time_ratio_to_eager"], 0)
        self.assertIsNone(compared["checkpoint"]["predicted_peak_bytes"])
        self.assertLess(compared["checkpoint"]["measured_peak_bytes"], run["eager_peak_bytes"])
        self.assertGreater(compared["recompute_all"]["recomputed_ops"], 0)

    def test_text_and_json_in_a_file(self):
        text = self.done(f"run {RESNET} --budget 75% --steps 1 --compare checkpoint,keep_all "
                         "--json out")
        for words in ["resnet18, batch 16", "plain LibTorch", "auto", "checkpoint", "time ratio",
                      "same bits", "yes", "resident", "does not fit", "keep_all reaches", "thread stacks"]:
            self.assertIn(words, text)
        run = json.loads(self.read("out"))
        self.check(run)
        self.assertFalse(run["compared"][1]["feasible"])

    def test_infeasible_says_what_is_missing_and_still_writes_json(self):
        error = self.fails(INFEASIBLE, f"run {RESNET} --budget 1MiB --json out")
        self.assertRegex(error, r"\Aremat run: budget 1 MiB is below the floor of [\d.]+ \w+ "
                                r"\(set by \S+ (forward|backward)\); raise --budget\Z")
        run = json.loads(self.read("out"))
        self.assertEqual((run["feasible"], run["budget_bytes"]), (False, 1 << 20))
        self.assertGreater(run["floor_bytes"], run["budget_bytes"])

    def test_the_same_seed_gives_the_same_losses(self):
        runs = [self.done_json(f"run {RESNET} --budget 80% --steps 2 --seed {seed}")
                for seed in [1, 1, 2]]
        losses = [(run["first_loss"], run["last_loss"]) for run in runs]
        self.assertEqual(losses[0], losses[1])
        self.assertNotEqual(losses[0], losses[2])


if __name__ == "__main__":
    cli_fixture.main()
