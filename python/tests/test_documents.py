# SPDX-License-Identifier: Apache-2.0
"""The documentation and the examples, as a newcomer would use them."""

import contextlib
import functools
import importlib.util
import io
import os
import pathlib
import re
import subprocess
import sys
import threading
import warnings

import nbclient
import nbformat
import pytest
import remat
import torch
from remat import _version
from training import assert_kept_its_word, assert_same, exact

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "python.md"
EXAMPLES = ROOT / "examples" / "python"


def snippets():
    """(language, code, line where it begins) of every fenced block."""
    text = PAGE.read_text(encoding="utf-8")
    for found in re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
        yield found[1], found[2], text.count("\n", 0, found.start()) + 2


def execute(code, line, namespace):
    """Like a cell that was typed in; errors and layers then name the line of the page."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(compile("\n" * (line - 1) + code, PAGE, "exec"), namespace)
    return said.getvalue()


def in_shell(code):
    """The command lies beside the interpreter, or, where the package was not installed, in it."""
    places = [pathlib.Path(sys.executable).parent, pathlib.Path(remat.__file__).parent / "bin"]
    path = os.pathsep.join([*map(str, places), os.environ["PATH"]])
    done = subprocess.run(
        ["bash", "-e", "-c", code], capture_output=True, text=True, timeout=300, env={**os.environ, "PATH": path}
    )
    assert (done.returncode, done.stderr) == (0, ""), done
    return done.stdout


def losses_in(text):
    return [float(each) for each in re.findall(r"^step \d+: loss (\d+\.\d+)$", text, re.MULTILINE)]


def test_every_snippet_of_the_page_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    namespace = {"__name__": "__main__"}
    said = ""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for language, code, line in snippets():
            if language == "python":
                said += execute(code, line, namespace)
            elif language == "sh" and "apt-get" not in code:
                said += in_shell(code)
    losses = losses_in(said)
    assert len(losses) == 6 and losses[-1] < losses[0] / 2, said
    (right,) = re.findall(r"^(\d+)% right$", said, re.MULTILINE)
    assert int(right) > 90
    assert re.search(r"^\[step\] no plan fits the budget of 1 KiB.* \d+$", said, re.MULTILINE), said
    assert_kept_its_word(namespace["train_step"], planned=50)
    assert_kept_its_word(namespace["step"], planned=4)
    assert namespace["plan"].feasible
    assert (tmp_path / "step.graph").read_text() == remat.print_graph(namespace["train_step"].graph())
    assert (tmp_path / "report.html").stat().st_size > 1000


def test_the_page_shows_the_rows_of_a_report():
    (shown,) = [code for language, code, _ in snippets() if language == "text"]
    weight = torch.nn.Parameter(torch.ones(8))
    step = remat.TrainingStep(lambda x: (weight * x).sum(), budget="1GiB", plan_seconds=0.1, measure_seconds=0.1)
    step(torch.ones(8))

    def names(text):
        return [line[:13].strip() for line in text.splitlines()]

    assert names(shown) == names(str(step.report()))


def test_the_page_names_what_an_installation_needs():
    """Installing is tested where the second environment is made; here, that the words are those of the build."""
    (install,) = [code for language, code, _ in snippets() if "apt-get" in code]
    demanded = re.findall(r"=([\w-]+-dev)", (ROOT / "cmake" / "remat_packages.cmake").read_text())
    assert len(demanded) == 3 and set(demanded) <= set(install.split())
    text = PAGE.read_text(encoding="utf-8")
    assert set(re.findall(r"torch(?: |==)(\d[\d.]*\d)", text)) == {_version.TORCH_VERSION}


def sets_the_seed(x):
    torch.manual_seed(3)
    return torch.nn.functional.dropout(x)


def picks_rows(x):
    return x[x[:, 0] > 0]


@pytest.mark.parametrize("function", [sets_the_seed, picks_rows])
def test_what_the_page_says_is_run_plainly(function):
    weight = torch.nn.Parameter(torch.ones(8, 8))
    notices = []
    step = remat.TrainingStep(
        lambda x: (function(x) @ weight).square().mean(),
        budget="1GiB",
        plan_seconds=0.1,
        measure_seconds=0.1,
        notice=notices.append,
    )
    for _ in range(10):
        step(torch.randn(64, 8))
    report = step.report()
    assert report.planned_steps <= 1 and report.plain_steps >= 9, f"docs/python.md says otherwise: {report}"
    assert notices and all("took another course" in text or "takes another course" in text for text in notices)


def test_what_the_page_says_is_refused():
    def made_by_another_thread(x):
        made = []
        thread = threading.Thread(target=lambda: made.append(x + 1))
        thread.start()
        thread.join()
        return made[0].sum()

    step = remat.step(made_by_another_thread, budget="1GiB")
    with pytest.raises(remat.Error, match="another thread"):
        for _ in range(3):
            step(torch.ones(4))


def test_the_links_of_the_page_lead_somewhere():
    links = re.findall(r"\]\(([^)]+)\)", PAGE.read_text(encoding="utf-8"))
    assert links
    for link in links:
        path, _, heading = link.partition("#")
        target = PAGE.parent / path
        assert target.is_file(), link
        assert not heading or heading in headings_of(target.read_text(encoding="utf-8")), link


def headings_of(text):
    """As links name them: small letters, spaces as hyphens, nothing else but letters and digits."""
    titles = re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def run_example(name, *arguments):
    done = subprocess.run(
        [sys.executable, EXAMPLES / name, *arguments], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done
    assert "Warning" not in done.stderr, done.stderr
    return done.stdout


def test_the_plain_loop_learns_inside_its_budget():
    said = run_example("plain_loop.py", "--steps", "21", "--batch", "16")
    losses = losses_in(said)
    assert len(losses) == 5 and losses[-1] < losses[0] / 2, said
    assert "19 planned, 2 plain" in said, said


def test_the_trainer_learns_inside_its_budget():
    said = run_example("trainer.py", "--steps", "8")
    losses = [float(each) for each in re.findall(r"'loss': '?(\d+\.\d+)", said)]
    assert len(losses) == 8 and losses[-1] < losses[0], said
    assert "7 planned, 1 plain" in said, said


def load_example(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def plans_quickly(monkeypatch):
    """For examples whose bits are compared: those of any plan are the same."""
    monkeypatch.setattr(remat, "step", functools.partial(remat.step, plan_seconds=0.2, measure_seconds=0.2))


def trained(trainer, **how):
    """Trains, and tells what came of it: every loss and everything that training has written, bit for bit."""
    step = trainer.training_step
    found = {}

    def noted_step(*args, **kwargs):
        loss = step(*args, **kwargs)
        found[f"loss {len(found)}"] = exact(loss)
        return loss

    trainer.training_step = noted_step
    trainer.train(**how)
    for name, tensor in trainer.model.state_dict().items():
        found[name] = exact(tensor)
    for index, state in trainer.optimizer.state_dict()["state"].items():
        found[f"state {index}"] = exact(state)
    found["generator"] = exact(torch.get_rng_state())
    return found


@pytest.mark.filterwarnings("ignore:the step took another course")  # where gradients accumulate
@pytest.mark.parametrize(
    "arguments",
    [{}, {"gradient_accumulation_steps": 2}, {"bf16": True}, {"activation_checkpointing": True}],
    ids=["as it comes", "accumulation", "bf16", "checkpointing"],
)
def test_the_trainer_computes_the_bits_of_a_plain_one(arguments, plans_quickly):
    make_trainer = load_example("trainer").make_trainer
    expected = trained(make_trainer(4, **arguments))
    trainer = make_trainer(4, budget="60%", **arguments)
    step = trainer.training_step
    assert_same(trained(trainer), expected)
    assert_kept_its_word(step, planned=3)


def test_a_trainer_goes_on_from_its_checkpoint(tmp_path, plans_quickly):
    make_trainer = load_example("trainer").make_trainer

    def resumed(folder, budget):
        saving = {"output_dir": folder, "save_strategy": "steps", "save_steps": 2}
        make_trainer(5, budget, **saving).train()
        trainer = make_trainer(5, budget, **saving)
        step = trainer.training_step
        return trained(trainer, resume_from_checkpoint=folder / "checkpoint-2"), step

    expected, _ = resumed(tmp_path / "plain", None)
    found, step = resumed(tmp_path / "budget", "60%")
    assert_same(found, expected)
    assert "loss 2" in found and "loss 3" not in found
    assert_kept_its_word(step, planned=2)


def test_the_notebook_runs(tmp_path):
    notebook = nbformat.read(EXAMPLES / "notebook.ipynb", as_version=4)
    nbformat.validate(notebook)
    assert not any(cell.get("outputs") for cell in notebook.cells), "clear the outputs before a commit"
    nbclient.execute(notebook, cwd=tmp_path, timeout=300, kernel_name="python3")
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    said = "".join(output.text for output in outputs if output.output_type == "stream" and output.name == "stdout")
    first, last = map(float, re.search(r"loss (\S+) at the beginning, (\S+) at the end", said).groups())
    assert last < first / 2
    assert not [output for output in outputs if output.output_type == "stream" and output.name == "stderr"], outputs
    (page,) = [output.data["text/html"] for output in outputs if output.output_type == "execute_result"]
    assert page.startswith("<iframe srcdoc=")
