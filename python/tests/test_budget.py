# SPDX-License-Identifier: Apache-2.0
"""What a budget may be, what happens where none fits, and what a step says about its memory."""

import html
import json
import re

import pytest
import remat
import torch
from torch.nn import functional as F
from training import assert_kept_its_word, assert_same, made, network, rows, run, simple, state_of

QUICK = {"plan_seconds": 0.2, "measure_seconds": 0.1}


def with_budget(budget):
    return made(simple, lambda function: remat.step(function, budget=budget, **QUICK))


def report_with(budget):
    training = with_budget(budget)
    run(training, 4)
    assert_kept_its_word(training.step)
    return training.step.report()


@pytest.mark.parametrize(
    ("budget", "expected"),
    [
        ("2GiB", 2 * 2**30),
        ("1.5 GB", 1_500_000_000),
        ("512MiB", 512 * 2**20),
        (" 64 KiB ", 64 * 2**10),
        ("100000", 100_000),
        (100_000, 100_000),
        (1e6, 1_000_000),
    ],
)
def test_budget_in_bytes(budget, expected):
    assert report_with(budget).budget_bytes == expected


@pytest.mark.parametrize(("budget", "share"), [("75%", 0.75), ("90.5%", 0.905), (" 80 %", 0.8)])
def test_budget_as_a_share_of_the_plain_peak(budget, share):
    report = report_with(budget)
    assert report.budget_bytes == pytest.approx(share * report.keep_all_peak_bytes, abs=1)


def test_the_whole_plain_peak_is_enough_to_keep_everything():
    report = report_with("100%")
    assert report.keep_all_peak_bytes <= report.budget_bytes < 1.2 * report.keep_all_peak_bytes
    assert report.time_ns <= report.keep_all_time_ns


def test_auto_is_less_than_the_memory_of_the_machine():
    with open("/proc/meminfo", encoding="ascii") as file:
        total = int(file.readline().split()[1]) * 1024
    report = report_with("auto")
    assert report.external_bytes < report.budget_bytes < total


@pytest.mark.parametrize(
    "budget",
    ["", "lots", "2 GigaBytes", "-1GiB", "-5%", "0%", "%", "GiB", "nan", "1GiB2"]
    + [None, True, -1, float("nan"), float("inf"), [], b"2GiB", 1j],
)
def test_nonsense_is_refused_with_what_was_found_and_expected(budget):
    with pytest.raises(remat.Error) as caught:
        remat.step(lambda: None, budget=budget)
    text = str(caught.value)
    found = budget.strip() if isinstance(budget, str) else repr(budget)
    assert found.rstrip("%") in text and "expected" in text, text


def test_the_budget_is_not_optional():
    with pytest.raises(TypeError, match="budget"):
        remat.step(lambda: None)


def test_only_functions_are_steps():
    with pytest.raises(TypeError, match="expects a function, found int"):
        remat.step(3, budget="1GiB")
    with pytest.raises(TypeError, match="expects a function, found str"):
        remat.TrainingStep("loss", budget="1GiB")


def test_an_unknown_strategy_is_refused_with_the_known_ones():
    with pytest.raises(remat.Error, match="unknown strategy 'magic'; expected one of .*search"):
        step = remat.step(lambda x: (x * 2).sum(), budget="1GiB", strategy="magic")
        step(torch.ones(3))


def test_below_the_floor_the_plain_step_has_happened():
    training = with_budget(1000)
    expected = made(simple, lambda function: function)
    for i in range(3):
        torch.manual_seed(i)
        expected.step(*rows(i))
        wanted = state_of(expected)
        torch.manual_seed(i)
        if i == 0:  # makes the optimizer's state, and is not planned
            training.step(*rows(i))
        else:
            with pytest.raises(remat.Infeasible) as caught:
                training.step(*rows(i))
            assert caught.value.budget_bytes == 1000 < caught.value.floor_bytes
            assert "raise the budget" in str(caught.value)
        assert_same(state_of(training), wanted, f"after step {i}")


def test_the_floor_that_an_error_tells_is_enough():
    training = with_budget(1000)
    with pytest.raises(remat.Infeasible) as caught:
        run(training, 3)
    report = report_with(caught.value.floor_bytes)
    assert report.peak_bytes <= caught.value.floor_bytes


def test_infeasible_is_an_error_and_a_runtime_error():
    assert issubclass(remat.Infeasible, remat.Error) and issubclass(remat.Error, RuntimeError)


def test_before_the_first_plan_there_is_nothing_to_report():
    training = with_budget("1GiB")
    for ask in (training.step.report, training.step.graph, training.step.plan, training.step.schedule):
        with pytest.raises(remat.Error, match="nothing to report|no call has been planned"):
            ask()


def test_report_is_a_table_and_a_record():
    report = report_with("75%")
    values = report.as_dict()
    for name in (
        "budget_bytes keep_all_peak_bytes eager_peak_bytes floor_bytes predicted_peak_bytes measured_peak_bytes "
        "peak_bytes arena_bytes external_bytes keep_all_time_ns time_ns capture_seconds measure_seconds plan_seconds "
        "variants planned_steps plain_steps counts timeline strategy"
    ).split():
        assert getattr(report, name) == values[name]
    assert report.floor_bytes <= report.predicted_peak_bytes <= report.peak_bytes <= report.budget_bytes
    assert report.budget_bytes < report.keep_all_peak_bytes
    assert report.peak_bytes == report.external_bytes + report.arena_bytes
    assert max(report.timeline) == report.predicted_peak_bytes
    assert report.planned_steps + report.plain_steps == 4
    rows_of_text = str(report).split("\n")
    assert [row.split("  ")[0] for row in rows_of_text][:2] == ["budget", "plain step"]
    assert f"({report.peak_bytes / report.keep_all_peak_bytes:.0%})" in str(report)
    assert repr(report).startswith("<remat.Report: ")


def data_of(page):
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page).group(1))


def test_in_a_notebook_a_report_is_a_page_in_a_frame():
    report = report_with("75%")
    frame = re.fullmatch(r'<iframe srcdoc="([^"]*)"[^<>]*></iframe>', report._repr_html_())
    data = data_of(html.unescape(frame.group(1)))
    assert data["budget_bytes"] == report.budget_bytes
    assert data["schedules"]["planned"]["peak_bytes"] == report.predicted_peak_bytes
    assert max(data["schedules"]["planned"]["measured_bytes"]) == report.measured_peak_bytes


def test_the_page_needs_no_network(tmp_path):
    training = with_budget("75%")
    run(training, 4)
    path = tmp_path / "report.html"
    training.step.save_html(path)
    page = path.read_text(encoding="utf-8")
    assert page.lower().startswith("<!doctype html>") and page.rstrip().endswith("</html>")
    assert "train" in page and data_of(page)["ops"]["name"]
    for outside in ("src=", "@import", "<img", "url("):
        assert outside not in page


def test_graph_plan_and_schedule_agree():
    training = with_budget("75%")
    run(training, 4)
    step = training.step
    graph, plan, schedule, report = step.graph(), step.plan(), step.schedule(), step.report()
    assert remat.verify(graph, schedule, budget=report.budget_bytes) is None
    simulation = remat.simulate(graph, schedule)
    assert simulation.peak_bytes == report.predicted_peak_bytes == max(simulation.timeline)
    assert plan.feasible and plan.strategy == report.strategy
    assert set(plan.order) == set(range(graph.op_count))
    assert len(plan.order) >= graph.op_count
    assert remat.parse_graph(remat.print_graph(graph)) == graph


def test_layers_and_parameters_have_the_names_of_the_modules():
    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first = torch.nn.Linear(8, 16)
            self.norm = torch.nn.BatchNorm1d(16)
            self.second = torch.nn.Linear(16, 8)

        def forward(self, x):
            return x + self.second(torch.tanh(self.norm(self.first(x))))

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = torch.nn.ModuleList([Block(), Block()])
            self.head = torch.nn.Linear(8, 4)

        def forward(self, x):
            for block in self.blocks:
                x = block(x)
            return self.head(x)

    training = made(lambda step: simple(step, Model()), lambda f: remat.step(f, budget="100%", **QUICK))
    run(training, 3)
    graph = training.step.graph()
    scopes = {op["scope"] for op in graph.ops}
    assert {"blocks.0.first", "blocks.1.norm", "blocks.0", "head"} <= scopes
    phases = {op["phase"] for op in graph.ops if op["scope"] == "blocks.1.second"}
    assert {"forward", "backward"} <= phases
    roles = {each["name"]: each["role"] for each in graph.externals}
    for name, _ in training.modules[0].named_parameters():
        assert roles[name] == "param", roles
    assert "blocks.0.norm.running_mean" in roles


def test_a_training_step_names_what_its_model_has():
    model = network()
    step = remat.TrainingStep(
        lambda x, y: F.cross_entropy(F.linear(x, model[0].weight).sum(1, keepdim=True).expand(-1, 4), y),
        model,
        budget="100%",
        **QUICK,
    )
    for i in range(3):
        step(*rows(i))
        model.zero_grad()
    assert "0.weight" in {each["name"] for each in step.graph().externals}


def test_a_budget_that_changes_between_calls():
    budgets = [None, "80%", "95%", "1MiB", "80%"]

    def train(training, set_budget):
        states = []
        for budget in budgets:
            if budget is not None:
                set_budget(budget)
            states += run(training, 3)
        return states

    plain = train(made(simple, lambda function: function), lambda budget: None)
    training = made(simple, lambda function: remat.step(function, budget="1GiB", **QUICK))
    recorded = []

    def set_budget(budget):
        recorded.append(training.step.report().plain_steps)
        training.step.set_budget(budget)
        assert training.step.report().peak_bytes <= training.step.report().budget_bytes

    for i, (found, expected) in enumerate(zip(train(training, set_budget), plain, strict=True)):
        assert_same(found, expected, f"step {i}")
    assert len(set(recorded)) == 1  # nothing was recorded again
    report = training.step.report()
    assert report.budget_bytes == pytest.approx(0.8 * report.keep_all_peak_bytes, abs=1)
    with pytest.raises(remat.Infeasible):
        training.step.set_budget(1000)
    assert training.step.report().budget_bytes == report.budget_bytes
    with pytest.raises(remat.Error, match="auto"):
        training.step.set_budget("auto")
