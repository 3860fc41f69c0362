"""A protocol's version stands beside its name, and what it does otherwise with some models is no deviation from it."""

from dataclasses import replace

import pytest

from chomsky_ladder.harness.cli.arguments import parse_run
from chomsky_ladder.harness.config.protocol import Case, Protocol
from chomsky_ladder.harness.config.protocols import PROTOCOLS, columns_of, identity_of, preset_run, with_model
from chomsky_ladder.harness.config.run import Run
from chomsky_ladder.harness.store.labels import Identity, reproduce
from chomsky_ladder.harness.sweep.study import study_runs

LEFT_ALONE = ("xlstm", "xlstm_20k", "xlstm_cpu", "quick", "ladder-v1", "climb-v1")
CASES = (
    Case(models=("lstm", "rnn"), train={"batch": 64}),
    Case(models=("lstm",), tasks=("parity",), train={"batch": 32, "clip": 0.5}, model={"d_model": 24}),
    Case(tasks=("cycle_nav",), model={"num_blocks": 3}),
    Case(models=("xlstm",), where={"ratio": "1:0", "conv": "none"}, train={"batch": 512}),
)


@pytest.fixture
def special(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PROTOCOLS, "special", replace(PROTOCOLS["xlstm"], cases=CASES))


def renewed(monkeypatch: pytest.MonkeyPatch, version: int) -> Run:
    monkeypatch.setitem(PROTOCOLS, "renewed", replace(PROTOCOLS["xlstm"], version=version))
    return preset_run("parity", "lstm", protocol="renewed")


@pytest.mark.parametrize("version", [2, 13])
def test_a_version_is_a_setting_and_stands_in_the_label(version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    run = renewed(monkeypatch, version)
    identity = identity_of(run)
    assert identity.settings == {"protocol.version": version}
    assert (identity.protocol, identity.task, identity.model) == (f"renewed v{version}", "parity", "lstm")
    shorter = identity_of(replace(run, train=replace(run.train, steps=7)))
    assert shorter.protocol == f"renewed v{version} (train.steps=7)"
    assert shorter.protocol_parts("train.steps").whole == f"renewed v{version}"
    assert columns_of(run)["protocol"] == f"renewed v{version}" and columns_of(run)["protocol_name"] == "renewed"


def test_the_first_version_is_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    run = renewed(monkeypatch, 1)
    assert identity_of(run) == Identity("renewed", "parity", "lstm", {})
    for name in LEFT_ALONE:
        assert (PROTOCOLS[name].version, PROTOCOLS[name].cases) == (1, ())


def test_a_record_is_read_with_and_without_a_version() -> None:
    """Read an old record by its labels alone, and a new one by its settings column."""
    old = {"protocol": "deepmind", "task": "parity", "model": "lstm"}
    assert Identity.of(old) == Identity("deepmind", "parity", "lstm", {})
    new = Identity("deepmind", "parity", "lstm", {"protocol.version": 2, "train.steps": 7})
    assert Identity.of(new.columns() | new.labels()) == new
    assert Identity.of(new.labels()) == new
    assert Identity.of(old).protocol != new.protocol == "deepmind v2 (train.steps=7)"


def test_a_command_says_of_which_version_it_is() -> None:
    words, notes = reproduce(Identity("deepmind", "parity", "lstm", {"protocol.version": 2}), lr=0.5)
    assert words == "ladder run parity lstm --protocol deepmind --train.lr 0.5"
    assert notes == ["deepmind is version 2: another version of the code may have another."]


@pytest.mark.usefixtures("special")
@pytest.mark.parametrize(
    ("task", "model", "expected"),  # batch, clip, width, blocks
    [
        ("parity", "lstm", (32, 0.5, 24, 2)),
        ("even_pairs", "lstm", (64, 1.0, 128, 2)),
        ("parity", "rnn", (64, 1.0, 128, 2)),
        ("parity", "gru", (256, 1.0, 128, 2)),
        ("cycle_nav", "lstm", (64, 1.0, 128, 3)),
        ("parity", "xlstm", (256, 1.0, 128, 2)),
    ],
)
def test_a_case_is_of_its_models_and_tasks(task: str, model: str, expected: tuple[float, ...]) -> None:
    run = preset_run(task, model, protocol="special")
    assert (run.train.batch, run.train.clip, run.model.d_model, run.model.num_blocks) == expected
    assert identity_of(run).settings == {}


@pytest.mark.usefixtures("special")
def test_a_case_follows_a_models_settings() -> None:
    run = preset_run("parity", "xlstm", protocol="special")
    mlstm = with_model(run, {"ratio": "1:0"})
    assert mlstm.train == replace(run.train, batch=512)
    assert identity_of(mlstm).labels() == {"protocol": "special", "task": "parity", "model": "xlstm (ratio=1:0)"}
    by_hand = replace(run, model=replace(run.model, ratio="1:0"))
    assert identity_of(by_hand).protocol == "special (train.batch=256)"
    assert with_model(mlstm, {"ratio": "0:1"}).train == run.train
    assert with_model(mlstm, {"conv": "causal4"}).train == run.train


@pytest.mark.usefixtures("special")
def test_a_command_line_follows_it_too() -> None:
    line = ["parity", "xlstm", "--protocol", "special", "--model.ratio"]
    assert parse_run([*line, "1:0"])[0].train.batch == 512
    assert parse_run([*line, "0:1"])[0].train.batch == 256
    for words in (["--train.batch", "256"], ["--train.batch=256"]):
        assert parse_run([*line, "1:0", *words])[0].train.batch == 256
    (run,) = {run.train.batch for run in study_runs("full", tasks=["parity"], models=[MLSTM], full="special")}
    assert run == 512


MLSTM = ("xlstm", {"ratio": "1:0"})


def test_how_a_paper_reports_is_said_in_words_it_has() -> None:
    for name, protocol in PROTOCOLS.items():
        assert isinstance(protocol, Protocol)
        assert protocol.reports in ("mean", "median", "best") and protocol.measure in ("scaled", "raw"), name
        assert 0 < protocol.solved <= 1
