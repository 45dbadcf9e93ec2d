# SPDX-License-Identifier: Apache-2.0
"""The commands that need LibTorch: models, profile, run, and plan on a model. Tiny sizes.

    models_test.py TOOL GRAPHS_DIR [unittest's own arguments]
"""

import csv
import json
import re

import cli_fixture
from cli_fixture import BAR, ERROR, INFEASIBLE, USAGE, CliTest

RESNET = "resnet18 --batch 16 --image 64 --width 8"
BERT = "bert_base --batch 8 --seq 128 --layers 4 --width 64"  # has dropout, whose masks can be packed
GPT = "gpt2_small --batch 2 --seq 12 --layers 2 --width 16"
ZOO = ["resnet18", "resnet50", "resnet152", "bert_base", "gpt2_small", "gpt2_small_fused",
       "vit_small", "unet", "convnext_tiny", "lstm_lm", "mlp_mixer"]


class HelpTest(CliTest):
    def test_help_names_every_option(self):
        sizes = "--batch --image --seq --layers --width --dtype --threads"
        expected = {
            "": "models profile plan run sweep",
            "models": "--json",
            "profile": f"MODEL {sizes} --optimizer --depth --rows --graph --html --details --trace --dot --range --csv --json",
            "plan": f"GRAPH|MODEL {sizes} --optimizer",
            "sweep": f"MODEL {sizes} --batches --budgets --limit --strategy --measured --steps --html --json --csv",
            "run": f"MODEL {sizes} --optimizer --budget --plan --steps --strategy --compare --verify --seed --html --details --json "
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
        for option in ["--batch 2", "--optimizer adamw"]:
            self.assertIn("net is a graph file, and its sizes are fixed; sizes, optimizers and a folder to offload to are for a model",
                          self.fails(ERROR, f"plan net --budget 50% {option}"))

    def test_run_usage(self):
        for rest in ["", "resnet18", "--budget 50%", "resnet18 --budget abc",
                     "resnet18 --budget 50%,60%", "resnet18 --budget 50% --steps 0",
                     "resnet18 --budget 50% --steps x", "resnet18 --budget 50% --compare best",
                     "resnet18 --budget 50% --strategy checkpoint", "resnet18 --budget 50% --seed -1"]:
            with self.subTest(rest=rest):
                error = self.fails(USAGE, "run " + rest)
                self.assertTrue(error.startswith("remat run: "), error)
                self.assertTrue(error.endswith("; see remat run --help"), error)

    def test_files_that_cannot_be_written_are_found_before_any_work(self):
        """The size is wrong too, which shows as soon as the model is made."""
        bad = "vit_small --image 20"
        for command in [f"profile {bad}", f"plan {bad} --budget 50%", f"run {bad} --budget 50%", f"sweep {bad}"]:
            options = ["--json nowhere/file", "--html nowhere/file", "--csv net"]
            options += [] if command.startswith("sweep") else ["--trace nowhere/file"]
            for option in options:
                with self.subTest(command=command, option=option):
                    self.assertRegex(self.fails(ERROR, f"{command} {option}"),
                                     "cannot write nowhere/file: No such file|cannot make the folder net: Not a directory")
        self.assertIn("cannot write .: Is a directory", self.fails(ERROR, f"profile {bad} --graph ."))
        self.assertIn("cannot write nowhere/file", self.fails(ERROR, f"fit {bad} --budget 1GiB --json nowhere/file"))
        self.assertIn("cannot make the folder net", self.fails(ERROR, f"fit {bad} --budget 1GiB --csv net"))
        self.assertEqual(self.files(), ["net"])

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
            self.assertEqual(sum(row["forward_ns"] + row["backward_ns"] + row["optimizer_ns"] for row in profile[part]),
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

        self.assertNotIn("ops", profile, "without --details the JSON has sums only")
        self.assertRegex(self.page_title("page"), r"\AProfile of resnet18, batch 16, ")
        shown = self.page_data("page")
        self.assertEqual(max(shown["timeline"]["bytes"]), whole)
        for key, value in profile.items():
            self.assertEqual(shown[key], value, key)

    def test_text(self):
        text = self.done(f"profile {GPT} --rows 3")
        for words in ["gpt2_small, batch 2, sequence 12, layers 2, width 16, f32", "everything kept",
                      "plain LibTorch", "whole replayed step", "activation", "forward", "layer",
                      "kind of op", "aten::", "more)"]:
            self.assertIn(words, text)

    def test_for_other_tools(self):
        profile = json.loads(self.done(f"profile {RESNET} --csv tables --trace trace --dot dot --range 0:3 --json -"))
        with open(self.dir / "tables" / "ops.csv", newline="", encoding="utf-8") as file:
            ops = list(csv.DictReader(file))
        self.assertEqual(len(ops), profile["op_count"])
        self.assertEqual(sum(int(op["time_ns"]) for op in ops), profile["op_time_ns"])
        with open(self.dir / "tables" / "timeline.csv", newline="", encoding="utf-8") as file:
            self.assertEqual(max(int(row["bytes"]) for row in csv.DictReader(file)), profile["keep_all_peak_bytes"])
        self.assertEqual(sorted(path.stem for path in (self.dir / "tables").iterdir()),
                         ["kinds", "layers", "ops", "phases", "roles", "timeline"])
        self.assertIn("traceEvents", json.loads(self.read("trace")))
        self.assertIn("digraph", self.read("dot"))

    def test_progress_of_capturing_and_measuring(self):
        *shown, left = self.progress_lines("profile resnet18 --batch 16 --image 128 --threads 1")
        for what in ["capturing a step, twice", "measuring \\d+ ops"]:
            self.assertTrue([line for line in shown if re.fullmatch(what + BAR, line)], (what, shown))
        self.assertIn("everything kept", left)

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


class UpdateInsideTest(CliTest):
    """--optimizer: the update is a part of the step."""

    def test_profile_has_its_phase_and_its_state(self):
        profile = self.done_json(f"profile {GPT} --optimizer adamw --graph graph --details")
        self.assertEqual(profile["optimizer"], "adamw")
        ops = profile["ops"]
        phases = [phase for i, phase in enumerate(ops["phase"]) if i == 0 or phase != ops["phase"][i - 1]]
        self.assertEqual(phases, ["forward", "backward", "optimizer"])
        update = sum(time for time, phase in zip(ops["time_ns"], ops["phase"]) if phase == "optimizer")
        self.assertGreater(update, 0)
        rows = {row["name"]: row for row in profile["by_phase"]}
        self.assertEqual((rows["optimizer"]["optimizer_ns"], rows["optimizer"]["backward_ns"]), (update, 0))
        self.assertEqual(sum(row["optimizer_ns"] for row in profile["by_layer"]), update)
        by_role = {row["name"]: row["peak_bytes"] for row in profile["by_role"]}
        self.assertEqual(by_role["optimizer_state"], 2 * by_role["param"])
        text = self.done(f"profile {GPT} --optimizer sgd --rows 3")
        for words in ["optimizer sgd", "update", "optimizer_state"]:
            self.assertIn(words, text)
        self.assertIn(" optimizer ", self.read("graph"))

    def check(self, run):
        self.assertEqual(run["bit_identical"],
                         {"loss": True, "parameters": True, "optimizer_state": True, "buffers": True, "rng": True})
        self.assertEqual(run["measured_peak_bytes"], run["predicted_peak_bytes"])
        self.assertLessEqual(run["reserved_bytes"], run["budget_bytes"])
        self.assertEqual(run["outside_allocations"], 0)
        self.assertLess(run["last_loss"], run["first_loss"])

    def test_run_has_the_same_bits_inside_the_budget(self):
        for model, optimizer, budget in [(RESNET, "sgd", "75%"), (GPT, "adamw", "95%")]:
            with self.subTest(model=model):
                run = self.done_json(f"run {model} --optimizer {optimizer} --budget {budget} --steps 3 --verify --time-limit 1 "
                                     "--compare checkpoint,keep_all --details --html page")
                self.check(run)
                self.assertEqual(self.page_data("page"), run)
                for method in run["compared"]:
                    if method["feasible"]:
                        self.assertEqual(set(method["bit_identical"].values()), {True}, method["method"])
                self.assertEqual(max(run["schedules"]["planned"]["measured_bytes"]), run["measured_peak_bytes"])
                self.assertIn("optimizer", run["ops"]["phase"])

    def test_a_measured_trace(self):
        run = self.done_json(f"run {GPT} --optimizer adamw --budget 95% --steps 1 --trace trace")
        events = json.loads(self.read("trace"))["traceEvents"]
        measured = [event["args"]["bytes"] for event in events if event["name"] == "measured bytes"]
        self.assertEqual(max(measured), run["measured_peak_bytes"])
        self.assertIn("optimizer", {event.get("cat") for event in events})

    def test_a_saved_plan(self):
        gpt = f"{GPT} --threads 1"
        self.done(f"plan {gpt} --optimizer adamw --budget 95% --save gpt.plan")
        run = self.done_json(f"run {gpt} --optimizer adamw --plan gpt.plan --steps 2 --compare checkpoint --verify")
        self.check(run)
        self.assertTrue(run["saved_plan"])
        for other in ["--optimizer sgd", ""]:
            self.assertIn("the plan of gpt.plan is not used: it was made for another program",
                          self.fails(ERROR, f"run {gpt} {other} --plan gpt.plan --steps 1"))
        self.assertIn("; the budget is 1 KiB",
                      self.fails(ERROR, f"run {gpt} --optimizer adamw --plan gpt.plan --budget 1KiB --steps 1"))

    def test_usage(self):
        for command in ["profile", "run --budget 50%", "plan --budget 50%"]:
            self.assertIn("--optimizer", self.fails(USAGE, f"{command} {GPT} --optimizer lion"))


class SavedPlanTest(CliTest):
    """Each command is a process of its own."""

    def setUp(self):
        super().setUp()
        self.done(f"plan {GPT} --threads 1 --budget 95% --save gpt.plan")

    def test_run_uses_it(self):
        run = self.done_json(f"run {GPT} --threads 1 --plan gpt.plan --steps 2 --verify")
        self.assertTrue(run["saved_plan"])
        self.assertEqual(run["strategy"], "saved plan")
        self.assertEqual(set(run["bit_identical"].values()), {True})
        self.assertEqual(run["measured_peak_bytes"], run["predicted_peak_bytes"])
        self.assertLessEqual(run["reserved_bytes"], run["budget_bytes"])
        self.assertFalse(self.done_json(f"run {GPT} --budget 100% --steps 1")["saved_plan"])

    def refused(self, options):
        return self.fails(ERROR, f"run {options} --plan gpt.plan --steps 1")

    def test_a_plan_for_something_else_is_refused_with_the_reason(self):
        gpt = GPT + " --threads 1"
        self.assertIn("it was made for a batch of input0:Long[2,12], input1:Long[24]; this one is input0:Long[3,12]",
                      self.refused(gpt.replace("--batch 2", "--batch 3")))
        self.assertIn("it was made for another program", self.refused(gpt.replace("--width 16", "--width 32")))
        self.assertIn("it was made for another program", self.refused(gpt + " --dtype bf16"))
        self.assertIn("it was made with 1 threads; the step runs with 2", self.refused(GPT + " --threads 2"))
        self.assertIn("it was made for ", self.refused(RESNET))
        self.assertIn("; the budget is 1 KiB", self.refused(gpt + " --budget 1KiB"))

    def test_damage_is_refused(self):
        text = self.read("gpt.plan")
        self.write("gpt.plan", text[:-30])
        self.assertIn("gpt.plan: the file is damaged", self.refused(GPT))
        self.write("gpt.plan", "")
        self.assertIn("expected the header 'remat-plan 1'", self.refused(GPT))

    def test_usage(self):
        self.fails(USAGE, f"run {GPT}")
        self.fails(USAGE, f"run {GPT} --plan gpt.plan --strategy search")


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
                self.assertLess(run["last_loss"], run["first_loss"])

    def test_packed_and_offloaded(self):
        for options, packs, offloads, recomputes in [
            ("--strategy pack_only --budget 75%", True, False, False),
            ("--strategy offload_only --budget 70% --offload /var/tmp", False, True, False),
            ("--budget 55% --offload /var/tmp --no-pack --no-offload", False, False, True),
        ]:
            with self.subTest(options=options):
                run = self.done_json(f"run {BERT} --steps 2 --verify {options}")
                self.check(run)
                self.assertEqual((run["packed_values"] > 0, run["offloaded_bytes"] > 0, run["recomputed_ops"] > 0),
                                 (packs, offloads, recomputes))

    def test_a_folder_that_cannot_be_written_to(self):
        for folder, code in [("nowhere", USAGE), ("/proc", ERROR), ("/dev/shm", ERROR)]:  # the last lies in memory
            self.assertIn(folder, self.fails(code, f"run {GPT} --budget 75% --steps 1 --offload {folder}"))

    def test_the_page_shows_what_was_measured(self):
        run = self.done_json(f"run {GPT} --budget 75% --steps 2 --details --html page")
        self.assertEqual(self.page_data("page"), run)
        self.assertRegex(self.page_title("page"), r"\ARun of gpt2_small, batch 2, ")
        planned = run["schedules"]["planned"]
        self.assertEqual(planned["peak_bytes"], run["predicted_peak_bytes"])
        self.assertEqual(planned["measured_bytes"], planned["bytes"])
        self.assertEqual(max(planned["measured_bytes"]), run["measured_peak_bytes"])
        self.assertEqual(len(planned["op"]) - len(run["ops"]["name"]), run["recomputed_ops"])

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

    def test_the_trace_has_the_measured_bytes(self):
        run = self.done_json(f"run {RESNET} --budget 75% --steps 1 --trace trace --csv tables")
        events = json.loads(self.read("trace"))["traceEvents"]
        measured = [event for event in events if event["name"] == "measured bytes"]
        self.assertEqual(max(event["args"]["bytes"] for event in measured), run["measured_peak_bytes"])
        # What the allocator counted is what the memory model says, at every op.
        planned = {event["ts"]: sum(event["args"].values()) for event in events
                   if event["name"] == "bytes by role" and event["pid"] == 1}
        self.assertEqual([event["args"]["bytes"] for event in measured], [planned[event["ts"]] for event in measured])
        self.assertEqual(len([event for event in events if event.get("cat") == "recompute"]), run["recomputed_ops"])
        self.assertEqual(sorted(path.stem for path in (self.dir / "tables").iterdir()),
                         ["arena", "layers", "methods", "runs", "values"])

        def rows(name):
            with open(self.dir / "tables" / f"{name}.csv", newline="", encoding="utf-8") as file:
                return list(csv.DictReader(file))
        self.assertEqual([row["method"] for row in rows("methods")], ["plain", "auto"])
        self.assertEqual(max(int(row["measured_bytes"]) for row in rows("runs")), run["measured_peak_bytes"])
        self.assertEqual(sum(int(row["recomputed_ops"]) for row in rows("layers")), run["recomputed_ops"])

    def test_infeasible_says_what_is_missing_and_still_writes_json_and_the_page(self):
        error = self.fails(INFEASIBLE, f"run {RESNET} --budget 1MiB --json out --html page --csv tables")
        shown = self.page_data("page")
        self.assertFalse(shown["feasible"])
        self.assertGreater(shown["schedules"]["planned"]["peak_bytes"], shown["budget_bytes"])
        self.assertIn("values.csv", [path.name for path in (self.dir / "tables").iterdir()])
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
