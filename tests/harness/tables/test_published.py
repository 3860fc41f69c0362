"""Published values as data: all there, unchanged, and found beside the right cell of ours."""

import hashlib
from importlib.resources import files

import pytest

from chomsky_ladder.harness.config.presets import PROTOCOLS
from chomsky_ladder.harness.tables.published import Value, agreement, published, read, sources

SHA256 = {  # of the transcriptions; a value is never edited
    "slimpajama_perplexity.csv": "82afa57534bc31332e1785cee92206a806e458bf85ae21d7ae06bd7c5bb98a65",
    "xlstm_formal_language_table.csv": "52388653822fb18528f3b2e47a48cc67c8e91b677fa3ab34630e8eddac94f8d4",
    "xlstm_hard_tasks_table.csv": "e3aef0af23c1dc811390282bfdebd1d0c3a0120aa3ca759659211e378c31aaf8",
}
BY_HAND = [  # our task and model, and what the paper prints
    ("parity", "transformer", 0.03, 0.01),
    ("majority", "lstm", 0.82, 0.02),
    ("bucket_sort", "xlstm", 0.70, 0.21),
    ("missing_duplicate", "xlstm (ratio=1:0)", 0.33, 0.22),
    ("solve_equation", "xlstm (ratio=0:1)", 0.55, 0.09),
    ("cycle_nav", "mamba", 0.86, 0.04),
    ("reverse_string", "xlstm (ratio=1:0)", 0.22, None),
    ("set", "lstm_block", 0.18, None),
]


def test_the_files_are_the_transcribed_ones_and_each_has_a_source() -> None:
    folder = files("chomsky_ladder.harness.tables") / "papers"
    found = {path.name for path in folder.iterdir() if path.name.endswith(".csv")}
    assert found == set(SHA256) == {name for entry in sources().values() for name in entry["tables"]}
    for name, digest in SHA256.items():
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest
        assert len(read(name)) > 10
    assert all(entry["source"] and all(entry["tables"].values()) for entry in sources().values())


def test_the_two_tables_are_whole() -> None:
    paper = published("xlstm")
    assert len(paper.values) == 12 * 10 + 11 * 5  # the second has no row for the plain LSTM
    assert len({model for _, model in paper.values}) == 12 and len({task for task, _ in paper.values}) == 15
    assert all(0 <= value.mean <= 1 for value in paper.values.values())
    assert sum(value.std is None for value in paper.values.values()) == 55


@pytest.mark.parametrize(("task", "model", "mean", "std"), BY_HAND)
def test_our_cells_find_the_papers(task: str, model: str, mean: float, std: float | None) -> None:
    value = published("xlstm").of(task, model)
    assert value is not None
    assert (value.mean, value.std) == (mean, std)


@pytest.mark.parametrize(
    ("task", "model"),
    [("parity v2", "lstm"), ("parity", "lstm (d_model=16)"), ("parity", "mamba2"), ("dyck", "lstm"), ("set", "lstm")],
)
def test_a_changed_label_has_no_counterpart(task: str, model: str) -> None:
    assert published("xlstm").of(task, model) is None


def test_every_name_of_ours_is_a_task_or_a_model_and_meets_one_of_theirs() -> None:
    paper = published("xlstm")
    assert set(paper.tasks) == set(PROTOCOLS["xlstm"].table)
    assert sorted(paper.models.values()) == sorted({model for _, model in paper.values})
    assert sorted(paper.tasks.values()) == sorted({task for task, _ in paper.values})


def test_names_are_labels_that_runs_have() -> None:
    from dataclasses import replace

    from chomsky_ladder.harness.config.protocols import identity_of, preset_run

    paper = published("xlstm")
    run = preset_run("parity", "xlstm")
    ratios = {identity_of(replace(run, model=replace(run.model, ratio=ratio))).model for ratio in ("1:1", "1:0", "0:1")}
    others = {identity_of(preset_run("parity", name)).model for name in paper.models if " " not in name}
    assert ratios | others == set(paper.models)
    assert {identity_of(preset_run(name, "lstm")).task for name in paper.tasks} == set(paper.tasks)


def test_the_papers_budget_is_the_presets_but_for_its_seeds() -> None:
    budget, preset = published("xlstm").budget, PROTOCOLS["xlstm"]
    assert (budget.steps, budget.batch) == (preset.train["steps"], preset.train["batch"])
    assert (budget.rates, budget.blocks) == (len(preset.rates), preset.model["num_blocks"])
    assert (budget.seeds, budget.width, budget.parameters) == (2, None, None)


@pytest.mark.parametrize(
    ("mean", "std", "theirs", "their_std", "mark"),
    [
        (0.90, 0.02, 0.95, 0.02, "agrees"),  # .05 apart, .02 + .02 + .01
        (0.90, 0.02, 0.95, 0.01, "differs"),
        (0.95, 0.01, 0.90, 0.02, "differs"),
        (0.99, 0.00, 1.00, 0.00, "agrees"),
        (0.98, 0.00, 1.00, 0.00, "differs"),
        (0.90, None, 0.95, 0.01, "open"),
        (0.90, None, 0.91, 0.00, "agrees"),
        (0.90, float("nan"), 0.95, 0.04, "agrees"),
        (0.90, float("nan"), 0.95, 0.03, "open"),
        (0.10, 0.01, 0.15, None, "open"),
        (0.10, 0.04, 0.15, None, "agrees"),
    ],
)
def test_agreement_is_within_both_spreads(
    mean: float, std: float | None, theirs: float, their_std: float | None, mark: str
) -> None:
    assert agreement(mean, std, Value("", "", theirs, their_std)) == mark
