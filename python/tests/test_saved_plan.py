# SPDX-License-Identifier: Apache-2.0
"""Plans that outlive the process: save_plan, and plan= of the next one."""

import warnings

import pytest
import remat
import torch
from training import assert_kept_its_word, assert_same, made, rows, run, simple

QUICK = {"budget": "90%", "plan_seconds": 0.2, "measure_seconds": 0.1}

# What another process does: plans, and saves.
SAVE = """
import sys
import warnings
import remat
from training import made, run, simple

warnings.simplefilter("ignore")
steps = []
def step(function):
    steps.append(remat.step(function, budget="90%", plan_seconds=0.2, measure_seconds=0.1))
    return steps[-1]
run(made(simple, step), 4)
steps[0].save_plan(sys.argv[1])
"""


_texts = []  # of the file, made once


@pytest.fixture
def saved(python, tmp_path):
    path = tmp_path / "step.plan"
    if not _texts:
        python(SAVE, str(path))
        _texts.append(path.read_text())
    path.write_text(_texts[0])
    return path


def trained(build, steps=4, **options):
    """The step after training beside a plain loop, and what it said."""
    expected = run(made(build, lambda function: function), steps)
    step = []
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        found = run(made(build, lambda function: step.append(remat.step(function, **QUICK, **options)) or step[0]), steps)
    for i, (one, other) in enumerate(zip(found, expected, strict=True)):
        assert_same(one, other, f"after step {i}")
    assert_kept_its_word(step[0])
    return step[0], " ".join(str(each.message) for each in said)


def test_the_next_process_starts_without_measuring(saved, tmp_path):
    step, said = trained(simple, plan=saved)
    report = step.report()
    assert report.from_saved_plan and report.saved_plan_refused == ""
    assert (report.measure_seconds, report.plan_seconds) == (0, 0)
    assert "saved plan" not in said
    step.save_plan(tmp_path / "again.plan")
    assert (tmp_path / "again.plan").read_text() == saved.read_text()


def test_the_file_is_a_text(saved):
    text = saved.read_text()
    assert text.startswith(f"remat-plan 1\nlibrary {remat.__version__}\nlibtorch ")
    graph = text[text.index("remat-graph 1") : text.index("\nschedule\n") + 1]
    assert remat.parse_graph(graph).op_count > 10


def test_a_plan_of_another_program_is_refused_with_the_reason(saved):
    def other_shape(step):
        training = simple(step)
        training.batch = lambda i: rows(i, count=32)
        return training

    step, said = trained(other_shape, plan=str(saved))
    assert not step.report().from_saved_plan
    assert "it was made for a batch of input0:Float[64,8]" in step.report().saved_plan_refused
    assert step.report().saved_plan_refused in said


def test_a_file_that_is_no_plan_is_an_error(saved, tmp_path):
    def step():
        return remat.TrainingStep(lambda x: x.sum(), plan=saved, **QUICK)

    text = saved.read_text()
    saved.write_text(text[:-40])
    with pytest.raises(remat.Error, match="the file is damaged"):
        step()
    saved.write_text(text.replace("threads", "Threads", 1))
    with pytest.raises(remat.Error, match="damaged, or was changed"):
        step()
    saved.unlink()
    with pytest.raises(remat.Error, match="cannot read .*No such file"):
        step()


def test_there_must_be_a_plan_to_save(tmp_path):
    step = remat.step(lambda x: x * 2, **{**QUICK, "budget": "1MiB"})
    with pytest.raises(remat.Error, match="nothing to save"):
        step.save_plan(tmp_path / "step.plan")
    assert not list(tmp_path.iterdir())
    step(torch.ones(3))
    with pytest.raises(remat.Error, match="cannot write"):
        step.save_plan(tmp_path / "no" / "step.plan")
