"""Published values as data: all there, unchanged, and found beside the right cell of ours."""

import hashlib
from dataclasses import fields
from importlib.resources import files
from pathlib import Path

import pytest

from chomsky_ladder.harness.config.parts import plain
from chomsky_ladder.harness.config.presets import PROTOCOLS
from chomsky_ladder.harness.config.protocols import identity_of, overridden, preset_run
from chomsky_ladder.harness.config.run import Eval, Train
from chomsky_ladder.harness.tables.published import APART, of_file, papers, published, sources
from chomsky_ladder.tasks.base import TASKS

SHA256 = {  # of the transcriptions; a value is never edited
    "deletang_text.csv": "943fbe6ff47f828c2f7bd7d9bd8a2c89bfd380104ab453a09106709535a2ae00",
    "deltaformer_table5.csv": "9edb1cd9fe77b09274a08f27e5c68faa2adb881069a9e7ef4667c93640b9ac64",
    "fp_mamba_table4.csv": "a3dfdd933fc5d5e94fdb9a1977aea440081a007f96044d2edf2dfe8abdccfdc2",
    "grazzi_table3_best.csv": "44124c38f0cdf69572ce46cebc89cc52b4314204a1a54361b1f5648708d46107",
    "grazzi_table5_median.csv": "5e7cf0498ae84e80028ae08363a542c2a97283b853268fa2df101403bbc5ccf5",
    "mamba3_table5b.csv": "b4aec73c47538d7a7898625513b02886bb4cf96c6f493f02abb48f0cd412e65c",
    "pdssm_table2.csv": "c0ff4b71468f0c765391f39b87752b476593206968a6d8a4199f1f97b63de6a8",
    "pdssm_table3_groups.csv": "f093401edb163ced1f2244a331792516bfdbaa5953386c07947440cee97be46b",
    "slice_table2.csv": "7b62d6abeea59d37954548189f676e595aa98d3dd62239dbb57ca99f3c664a8a",
    "slice_table4.csv": "fe13dc26d1be1bf77ef2074fea0b1f3cd874f8594f0ed1facdf435d16a8d160b",
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
        assert all(entry["source"] and all(entry["tables"].values()) for entry in sources().values())


def test_the_two_tables_are_whole() -> None:
    paper = published("xlstm")
    assert len(paper.values) == 12 * 10 + 11 * 5  # the second has no row for the plain LSTM
    assert len({model for _, model in paper.values}) == 12 and len({task for task, _ in paper.values}) == 15
    assert all(0 <= value.value <= 1 for value in paper.values.values())
    assert sum(value.spread is None for value in paper.values.values()) == 55


@pytest.mark.parametrize(("task", "model", "mean", "std"), BY_HAND)
def test_our_cells_find_the_papers(task: str, model: str, mean: float, std: float | None) -> None:
    value = published("xlstm").of(task, model)
    assert value is not None
    assert (value.value, value.spread, value.rounding) == (mean, std, 0.005)


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


VALUES = {
    "xlstm": 175,
    "grazzi": 21,
    "grazzi_median": 28,
    "slice": 120,
    "pdssm": 8,
    "pdssm_groups": 18,
    "mamba3": 15,
    "fp_mamba": 7,
    "deltaformer": 37,
}


def test_every_paper_is_read_in_shares_with_its_measure_and_family() -> None:
    assert set(papers()) == set(VALUES)
    for name, count in VALUES.items():
        paper = published(name)
        assert len(paper.values) == count and all(-0.05 <= value.value <= 1 for value in paper.values.values())
        assert set(paper.family) <= set(PROTOCOLS) and paper.source
    found = published("slice").of("parity", "delta_net (eigenvalues=signed)")
    assert found is not None and found.value == pytest.approx(0.977) and found.rounding == pytest.approx(0.0005)
    found = published("pdssm").of("mod_arithmetic", "pd_ssm")
    assert found is not None and found.value == pytest.approx(0.962)
    found = published("mamba3").of("mod_arithmetic", "mamba2")
    assert found is not None and found.value == pytest.approx(0.4781) and found.rounding == pytest.approx(0.00005)
    found = published("deltaformer").of("cycle_nav", "encoder")
    assert found is not None and found.value == pytest.approx(0.619)
    assert (published("deltaformer").measure, published("deltaformer").reports) == ("raw", "best")
    assert published("grazzi").of("parity", "mamba (eigenvalues=signed)").value == 1.0


def test_names_in_the_files_are_labels_that_runs_have() -> None:
    from chomsky_ladder.harness.config.registry import find_model, find_task
    from chomsky_ladder.harness.store.labels import Identity

    for name in papers():
        for part, find in (("model", find_model), ("task", find_task)):
            for label in getattr(published(name), f"{part}s"):
                place = {"protocol": "xlstm", "task": "parity", "model": "lstm"} | {part: label}
                identity = Identity.of(place)
                settings = identity.of_model() if part == "model" else identity.of_task()
                assert set(settings) <= {field.name for field in fields(find(getattr(identity, f"{part}_name")))}


@pytest.mark.parametrize(
    ("settings", "value"),
    [
        ({}, None),
        ({"task.inputs": "generators=12"}, 0.605),
        ({"task.inputs": "generators=12", "model.num_blocks": 2}, 0.684),
        ({"task.group": "S5", "task.inputs": "generators=32"}, 0.0123),
        ({"task.group": "S5", "task.inputs": "generators=32", "task.pick": 1}, None),
    ],
)
def test_groups_and_their_generators_find_the_papers(settings: dict, value: float | None) -> None:
    paper = published("pdssm_groups")
    householders = {"model.eigenvalues": "signed", "model.num_householders": 4} if settings else {}
    run = overridden(
        preset_run("word_problem", "gated_delta_product", protocol="pdssm_groups"), {**householders, **settings}
    )
    identity = identity_of(run)
    found = paper.of(identity.task, identity.model)
    assert (found and found.value) == (value and pytest.approx(value))
    assert paper.why_not(identity) == ""
    longer = identity_of(overridden(run, {"train.lengths": [3, 80]}))
    assert paper.why_not(longer) == "pdssm_groups with another train.lengths"
    other = identity_of(preset_run("word_problem", "pd_ssm", protocol="slice"))
    assert paper.why_not(other) == "slice, which is not of its family"


@pytest.mark.parametrize("task", PROTOCOLS["fifteen-v1"].table)
def test_fifteen_stands_beside_the_paper_where_it_trains_on_the_same_answers(task: str) -> None:
    """Six of its tasks train on every prefix, and the paper's on the last answer. All else of a task is the paper's."""
    ours, theirs = (preset_run(task, "lstm", protocol=protocol) for protocol in ("fifteen-v1", "xlstm"))
    differing = {name for name, value in plain(ours.task).items() if value != plain(theirs.task)[name]}
    why_not = published("xlstm").why_not(identity_of(ours))
    if differing:
        assert differing == {"supervision"}
        assert why_not == f"{task} of fifteen-v1, which trains on the answer of every prefix"
    else:
        assert why_not == ""
    assert published("xlstm").why_not(identity_of(theirs)) == ""


@pytest.mark.parametrize(
    ("settings", "model", "value", "spread"),
    [
        ({}, "BD-SLiCE d=128 b=4", 0.953, 0.039),
        ({"model.block_size": 1}, "D-SLiCE d=128", 0.8912, 0.186),
        ({"model.block_size": 1, "model.d_model": 512}, "D-SLiCE d=512", 1.0, 0.0),
        ({"model.block_size": 2, "model.d_model": 256}, "BD-SLiCE d=256 b=2", 0.996, 0.008),
        ({"model.block_size": 8, "model.d_model": 64}, "BD-SLiCE d=64 b=8", 0.541, 0.049),
        ({"model.block_size": 16, "model.d_model": 32}, "BD-SLiCE d=32 b=16", 0.508, 0.003),
    ],
)
def test_each_size_of_slice_finds_the_papers(settings: dict, model: str, value: float, spread: float) -> None:
    identity = identity_of(overridden(preset_run("parity", "slice", protocol="slice"), settings))
    paper = published("slice")
    found = paper.of(identity.task, identity.model)
    assert found is not None and paper.why_not(identity) == ""
    assert (found.model, found.value, found.spread) == (model, pytest.approx(value), pytest.approx(spread))


def test_the_averages_of_the_paper_are_those_of_its_rows() -> None:
    """Table 2 prints them, so a slip of the transcription shows."""
    paper = published("slice")
    printed = {"LSTM": 100, "sLSTM": 65.1, "mLSTM": 58.5, "S4D": 41.3, "Mamba": 58.9, "RWKV-7": 54.1, "DeltaNet": 62.5}
    printed |= {"D-SLiCE": 72.6, "BD-SLiCE d=128 b=4": 83.8, "BD-SLiCE d=64 b=8": 79.0, "DPLR-SLiCE d=30 r=8": 75.3}
    for model, average in printed.items():
        own = [value.value for (_, theirs), value in paper.values.items() if theirs == model]
        assert len(own) == 4 and 100 * sum(own) / 4 == pytest.approx(average, abs=0.051)


def test_the_groups_are_the_best_of_three_seeds() -> None:
    paper = published("pdssm_groups")
    assert (paper.measure, paper.reports, paper.budget.seeds) == ("raw", "best", 3)


def test_the_larger_dictionary_is_that_of_s5() -> None:
    for group, maps in (("A5", {}), ("S5", {"model.num_maps": 32})):
        settings = {"task.group": group, "task.inputs": "generators=8", **maps}
        identity = identity_of(overridden(preset_run("word_problem", "pd_ssm", protocol="pdssm_groups"), settings))
        found = published("pdssm_groups").of(identity.task, identity.model)
        assert found is not None and found.value == 1


@pytest.mark.parametrize("setting", APART)
def test_what_stands_apart_is_a_setting_that_labels_have(setting: str) -> None:
    part, _, name = setting.partition(".")
    holders = {"train": (Train,), "eval": (Eval,), "task": TASKS}[part]
    assert any(name in {field.name for field in fields(holder)} for holder in holders)


def test_a_file_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text("model,task,metric,value,spread,protocol\nlstm,parity,accuracy %,98.3,0.4,xlstm; xlstm_cpu\n")
    paper = published(str(path))
    value = paper.of("parity", "lstm")
    assert value is not None and (value.value, value.spread) == (pytest.approx(0.983), pytest.approx(0.004))
    assert (paper.measure, paper.reports, set(paper.family)) == ("raw", "mean", {"xlstm", "xlstm_cpu"})
    path.write_text("model,ladder_model,task,value\nA,lstm,parity,0.5\nA,lstm,dyck,0.25\n")
    paper = of_file(path, protocols=("quick",))
    assert paper.of("parity", "lstm") is not None and paper.of("parity", "A") is None and paper.family == {"quick": 1}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("model,value\nlstm,1\n", "has no task: its columns are"),
        ("model,task,value\n", "has no values"),
        ("model,task,value\nlstm,parity,1\n", "does not say which protocols it is of"),
        ("model,task,value,protocol\nlstm,parity,high,xlstm\n", "no number for lstm on parity: high"),
        ("model,task,value,protocol\nlstm,parity,1,xlstm\nlstm,parity,0,xlstm\n", "two values for lstm on parity"),
        ("", "is no CSV of published values: No columns"),
        ("model,task,value\n\x00\udcff", "is no CSV of published values: "),
        ("model,task,value,protocol\nlstm,parity,98.3,xlstm\n", "98.3 for lstm on parity, which is no accuracy"),
        ("model,task,value,protocol\nlstm,parity,nan,xlstm\n", "nan for lstm on parity, which is no accuracy"),
        ("model,task,value,spread,protocol\nlstm,parity,1,-1,xlstm\n", "1 for lstm on parity, which is no accuracy"),
        (
            "model,ladder_model,task,value,protocol\nA,lstm,parity,1,xlstm\nB,lstm,set,1,xlstm\n",
            "two rows that stand beside lstm: A and B",
        ),
        ("model,task,value,metric,protocol\na,b,1,scaled,x\nc,d,1,raw,x\n", "holds 2 metrics"),
    ],
)
def test_a_file_that_is_none_is_one_line(text: str, says: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_bytes(text.encode("utf-8", errors="surrogateescape"))
    with pytest.raises(ValueError, match=says):
        of_file(path)
    with pytest.raises(ValueError, match="there is no file"):
        of_file(tmp_path / "gone.csv")


@pytest.mark.parametrize(
    ("paper", "protocol"),
    [
        ("grazzi", "grazzi"),
        ("mamba3", "mamba3"),
        ("slice", "slice"),
        ("pdssm", "slice"),
        ("deltaformer", "deepmind"),
    ],
)
def test_a_paper_is_read_as_its_own_protocol_reports(paper: str, protocol: str) -> None:
    found, preset = published(paper), PROTOCOLS[protocol]
    assert (found.measure, found.reports) == (preset.measure, preset.reports)
    assert found.family[protocol] == preset.version


@pytest.mark.parametrize("paper", papers())
def test_the_versions_of_a_family_are_the_presets(paper: str) -> None:
    family = published(paper).family
    assert family == {name: PROTOCOLS[name].version for name in family}
