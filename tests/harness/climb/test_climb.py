"""`ladder climb`: a stranger's layer goes up a small climb, is stopped on the way, goes on, and gets its card."""

import bz2
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from chomsky_ladder.harness.cli import climb as climbing
from chomsky_ladder.harness.cli.climb import ClimbOptions
from chomsky_ladder.harness.cli.main import main
from chomsky_ladder.harness.climb import page, reference
from chomsky_ladder.harness.climb.part import Part
from chomsky_ladder.harness.climb.runs import climb_runs, climber
from chomsky_ladder.harness.config import rows
from chomsky_ladder.harness.config.exec import Exec
from chomsky_ladder.harness.config.presets import PROTOCOLS
from chomsky_ladder.harness.config.protocol import SIZED_AT
from chomsky_ladder.harness.config.protocols import identity_of
from chomsky_ladder.harness.config.registry import find_model, load_plugin
from chomsky_ladder.harness.config.rows import DECISIVE, DECISIVE_RUNGS, ROWS, rows_of
from chomsky_ladder.harness.config.sizing import active_parameters
from chomsky_ladder.harness.stats.cells import FRESH
from chomsky_ladder.harness.store import places
from chomsky_ladder.harness.store.folder import RunFolder
from chomsky_ladder.harness.store.record import recorded, stored
from chomsky_ladder.models.base import MODELS, ModelConfig
from support.cases import full, some

PLUGIN = '''
"""The mean of everything so far."""
from dataclasses import replace

import torch
from torch import nn

from chomsky_ladder.harness.config.presets import PROTOCOLS
from chomsky_ladder.models.plain import plain_model


class Mean(nn.Module):
    def __init__(self, d_model):
        super().__init__()
        self.out = nn.Linear(d_model, d_model)

    def forward(self, x):
        return self.out(x.cumsum(1) / torch.arange(1, x.shape[1] + 1)[:, None])


plain_model("plain_mean", Mean)
whole = PROTOCOLS["climb-v1"]
few = {"test": 32, "validation": 16, "every": 10, "extrapolation": 8, "lengths": [3, 20], "bins": [3, 10, 20]}
PROTOCOLS["small-climb"] = replace(
    whole,
    rates=(1e-2,),
    seeds=2,
    params=3000,
    train=whole.train | {"steps": 20, "batch": 8, "curriculum": [5, 10]},
    eval=whole.eval | few | {"extrapolate": [24]},
    rungs=(whole.rungs[1], whole.rungs[4]),
)
'''


@pytest.fixture(scope="module")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path = tmp_path_factory.mktemp("plugin") / "plain_mean.py"
    path.write_text(PLUGIN)
    models, protocols = list(MODELS), dict(PROTOCOLS)
    load_plugin(str(path))
    yield path
    MODELS[:] = [cls for cls in MODELS if cls in models]
    for name in set(PROTOCOLS) - set(protocols):
        del PROTOCOLS[name]


def _a_rate_that_is_missing_and_an_edit_are_said(
    plugin: Path, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    small = PROTOCOLS["small-climb"]
    PROTOCOLS["small-climb"] = replace(small, rates=(1e-2, 1e-3))
    plugin.write_text(PLUGIN + "EDITED = True\n")
    assert main([*words[:2], *words[4:], "--card", "--json"]) == 0
    said = capsys.readouterr()
    card = json.loads(said.out)
    assert card["missing"] == 2
    assert card["next"][0].startswith("2 of 2 rungs have seeds or learning rates to come")
    assert "ladder: plain_mean.py has changed since it made 4 of the runs shown" in said.err
    plugin.write_text(PLUGIN)
    PROTOCOLS["small-climb"] = small


def _killed(words: list[str], results: Path) -> None:
    """Start a climb in a process of its own, and kill it when it has finished a run."""
    command = [sys.executable, "-m", "chomsky_ladder", *words, "--quiet"]
    child = subprocess.Popen(command, env=os.environ | {"OMP_NUM_THREADS": "1"}, stderr=subprocess.DEVNULL)
    while child.poll() is None and len(list(results.glob("runs/*/result.json"))) < 1:
        time.sleep(0.05)
    child.send_signal(signal.SIGKILL)
    child.wait()


def _interrupted(words: list[str], results: Path) -> None:
    """Start a climb in this process, and interrupt it when it has finished a run."""
    finish = RunFolder.finish

    def last(folder: RunFolder, result: dict[str, Any]) -> None:
        finish(folder, result)
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(RunFolder, "finish", last)
        assert main([*words, "--quiet"]) == 130


@pytest.mark.parametrize("stopped", [_interrupted, full(_killed)])
def test_a_layer_climbs_and_goes_on(
    stopped: Callable[[list[str], Path], None], plugin: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["climb", "plain_mean", "--plugin", str(plugin), "--protocol", "small-climb"]
    words += ["--exec.results", str(tmp_path), "--reference", str(_no_records(tmp_path))]
    stopped(words, tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.glob("runs/*/result.json")}
    assert 1 <= len(before) < 4
    assert main(["climb", "lstm", "--card", *words[4:]]) == 2  # of which there is nothing yet
    assert "no run of lstm under small-climb has finished" in capsys.readouterr().err

    assert main([*words, "--json"]) == 0
    said = capsys.readouterr()
    tree = json.loads(said.out)
    assert " of 4 runs to do, at most " in said.err
    assert {path: path.read_bytes() for path in before} == before and len(
        list(tmp_path.glob("runs/*/result.json"))
    ) == 4
    assert (tree["model"], tree["missing"], tree["run"], tree["transition"]) == ("plain_mean", 0, 2, "")
    assert [(row["rung"], row["n"], row["theory"]) for row in tree["rows"]] == [
        ("compare ends", 2, "open"),
        ("compose S3", 2, "open"),
    ]
    folder = tmp_path / "climb" / "plain_mean"
    assert {path.name for path in folder.iterdir()} == {
        f"card.{kind}" for kind in ("md", "html", "json", "png", "svg", "csv")
    }
    assert main([*words, "--card"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"written: {folder}/card.html, .md, .json, .png, .svg, .csv"
    _a_rate_that_is_missing_and_an_edit_are_said(plugin, words, capsys)
    html = (folder / "card.html").read_text()
    assert "data:image/png;base64," in html and "http" not in html.replace("http-equiv", "")
    assert any("declares no `transition`" in line and "gated units" in line for line in tree["next"])
    spent = stored(tmp_path / "records.csv")[["train_seconds", "score_seconds"]].sum().sum()
    assert tree["hours"] == pytest.approx(spent / 3600)  # of all runs, at all rates

    command = tree["rows"][1]["command"].removeprefix("ladder ").split()
    run_id = tree["rows"][1]["run_ids"][0]
    assert main([*command, "--exec.results", str(tmp_path / "again"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["run_id"] == run_id

    on_record = [
        *words[:6],
        "--reference",
        str(tmp_path / "records.csv"),
        "--exec.results",
        str(tmp_path / "elsewhere"),
    ]
    assert main([*on_record, "--json"]) == 0
    said = capsys.readouterr()
    assert "plain_mean: 4 of 4 runs are on record; --again trains them here" in said.err
    assert json.loads(said.out)["rows"] == tree["rows"] and not list(tmp_path.glob("elsewhere/runs/*"))
    assert main([*on_record, "--again", "--plan"]) == 0
    assert "4 of 4 runs to do, at most " in capsys.readouterr().err

    (made_by,) = set(stored(tmp_path / "records.csv")["sources"])
    edited = tmp_path / "edited.csv"
    edited.write_text((tmp_path / "records.csv").read_text().replace(made_by, f"{made_by[:-12]}{'0' * 12}"))
    on_record[on_record.index("--reference") + 1] = str(edited)
    assert main([*on_record, "--plan"]) == 0  # by the plugin as it was once
    said = capsys.readouterr().err
    assert "on record" not in said and "4 of 4 runs to do, at most " in said


def test_a_part_of_a_climb_is_a_part_of_its_runs_and_says_so(
    plugin: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(climbing, "_speed", lambda *of_what: None)
    monkeypatch.setattr(page, "draw", lambda *of_what: None)
    words = ["climb", "plain_mean", "--protocol", "small-climb", "--exec.results", str(tmp_path), "--quiet"]
    words += ["--reference", str(_no_records(tmp_path))]
    few = [*words, "--rungs", "even_pairs", "--seeds", "1"]
    assert main(few) == 0
    shown = capsys.readouterr().out
    title, about, *_ = shown.splitlines()
    assert title == "plain_mean on 1 rung of a part of small-climb: 0 held, 0 learnt and lost, 1 not learnt"
    assert about.startswith("1 of 2 rungs, 1 seed of 2") and "not comparable" in about
    assert "best of the others" not in shown and "ladder climb plain_mean" in shown
    made = list(tmp_path.glob("climb/plain_mean/*/card.*"))
    assert {path.suffix for path in made} == {".md", ".html", ".json"} and not list(tmp_path.glob("climb/*/card.*"))
    assert all("1 of 2 rungs, 1 seed of 2" in path.read_text() for path in made)
    done = {path.name for path in tmp_path.glob("runs/*")}
    runs = climb_runs(climber(find_model("plain_mean"), protocol="small-climb"), protocol="small-climb")
    assert done == {run.run_id for run in runs if run.seed == 0 and run.task.name == "even_pairs"}

    assert main([*words, "--seeds", "1", "--steps", "10", "--json"]) == 0  # other runs, under another label
    tree = json.loads(capsys.readouterr().out)
    assert tree["part"] == "2 of 2 rungs, 1 seed of 2, 10 steps of 20" and tree["beside"] == []
    assert [row["n"] for row in tree["rows"]] == [1, 1] and "--train.steps 10" in tree["rows"][0]["command"]
    assert set(stored(tmp_path / "records.csv")["protocol"]) == {"small-climb", "small-climb (train.steps=10)"}
    assert main([*words, "--card", "--json"]) == 0
    whole = json.loads(capsys.readouterr().out)
    assert (whole["part"], whole["missing"], [row["n"] for row in whole["rows"]]) == ("", 2, [1, 0])
    assert main([*words, "--card", "--rungs", "parity"]) == 2 and "no rung or task" in capsys.readouterr().err
    assert main([*few, "--against", "lstm"]) == 2 and "--against compares whole climbs" in capsys.readouterr().err


def test_runs_that_another_process_trains_are_left_to_it(
    plugin: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["climb", "plain_mean", "--protocol", "small-climb", "--exec.results", str(tmp_path)]
    words += ["--reference", str(_no_records(tmp_path)), "--rungs", "even_pairs", "--seeds", "1"]
    runs = climb_runs(climber(find_model("plain_mean"), protocol="small-climb"), protocol="small-climb")
    with ExitStack() as held:
        for run in runs:
            held.enter_context(RunFolder(tmp_path, run.run_id).locked())
        assert main(words) == 1
    said = capsys.readouterr().err
    assert "held by another process" in said and "--card" not in said


def test_an_installed_package_brings_the_reference_rows(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    head, *lines = bz2.decompress(reference.FILE.read_bytes()).splitlines(keepends=True)
    few = tmp_path / "few.csv.bz2"
    few.write_bytes(bz2.compress(head + b"".join(line for line in lines if b",climb-v1,mqar,lstm," in line)))
    monkeypatch.setattr(places, "published_results", lambda: None)
    monkeypatch.setattr(reference, "FILE", few)
    records, (lstm,) = climbing._reference(ClimbOptions(exec=Exec(results=tmp_path)))
    assert len(records) == 6 and [(step.rung.task, step.n) for step in lstm.steps if step.n] == [("mqar", 3)]


def test_a_part_is_named_by_rungs_and_tasks() -> None:
    protocol = PROTOCOLS["climb-v1"]
    part = Part.of(protocol, rungs="sort, word_problem,count-mod-2", seeds=1, steps=200)
    assert [rung.name for rung in part.rungs] == ["count mod 2", "compose S3", "compose A5", "sort"]
    assert part.about == "4 of 12 rungs, 1 seed of 3, 200 steps of 2,000"
    for whole in (Part.of(protocol), Part.of(protocol, seeds=3, steps=2000), Part.of(protocol, seeds=5)):
        assert whole.about == "" and len(whole.rungs) == 12
    model = climber(find_model("lstm"))
    all_of_it = {run.run_id for run in climb_runs(model)}
    some = climb_runs(model, part=Part.of(protocol, rungs="parity", seeds=2))
    assert len(some) == 4 and {run.run_id for run in some} < all_of_it
    assert not {run.run_id for run in climb_runs(model, part=part)} & all_of_it


def test_a_climb_tunes_on_one_seed_and_reports_fresh_ones(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(climbing, "_speed", lambda *of_what: None)
    found = PROTOCOLS["climb-v2"]
    few = {"test": 8, "validation": 8, "every": 1, "extrapolate": []}
    monkeypatch.setitem(PROTOCOLS, "tuned-climb", replace(found, eval=found.eval | few, rates=(1e-2, 1e-3)))
    words = ["climb", "lstm", "--protocol", "tuned-climb", "--rungs", "count-mod-2", "--steps", "4", "--seeds", "2"]
    words += ["--exec.results", str(tmp_path), "--reference", str(_no_records(tmp_path)), "--quiet", "--json"]
    assert main(words) == 0
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    seeds = sorted((record.lr, record.seed) for record in recorded(tmp_path / "records.csv").values())
    chosen = {lr for lr, seed in seeds if seed >= FRESH}
    assert [lr for lr, seed in seeds if seed == 0] == [1e-3, 1e-2] and len(chosen) == 1
    assert [seed for _, seed in seeds if seed] == [FRESH, FRESH + 1] and row["n"] == 2
    assert main([*words[:-1], "--plan"]) == 0 and "nothing is left to do" in capsys.readouterr().err
    more = [*words[:9], "3", *words[10:-1], "--plan"]
    assert main(more) == 0 and "1 of 5 runs to do, at most " in capsys.readouterr().err


def test_the_second_climb_has_its_own_rows() -> None:
    second = rows_of("climb-v2")
    assert len({(name, *changes.items()) for name, changes in second}) == len(second) == len(rows_of("climb-v1")) + 3
    assert {(name, *changes.items()) for name, changes in DECISIVE} < {(name, *c.items()) for name, c in second}
    assert set(DECISIVE_RUNGS) < {rung.name for rung in PROTOCOLS["climb-v2"].rungs}
    form: Any = climber(find_model("pd_ssm"), protocol="climb-v2")
    assert (form.d_state, identity_of(climb_runs(form, protocol="climb-v2")[0]).model) == (64, "pd_ssm")


def _no_records(folder: Path) -> Path:
    path = folder / "none.csv"
    path.write_text("run_id,protocol\n")
    return path


def test_a_mistake_is_one_line_before_any_work(
    plugin: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rest = ["--exec.results", str(tmp_path)]
    for words, message in (
        ([], "which model? "),
        (["lstm", "--all"], "which model? "),
        (["lstmm"], "unknown model 'lstmm'; did you mean lstm"),
        (["lstm", "--protocol", "xlstm"], "xlstm is no climb; there is climb-v1"),
        (["lstm", "--protocol", "climb-v3"], "unknown protocol 'climb-v3'; did you mean"),
        (["lstm", "--decisive"], "--decisive chooses models and rungs, so it goes with --all"),
        (["lstm", "--against", "nobody"], "--against nobody: no climb of that model"),
        (
            ["lstm", "--rungs", "partiy"],
            "--rungs: no rung or task of the climb is called 'partiy'; did you mean parity",
        ),
        (["lstm", "--steps", "-1"], "--steps is how many, 0 for the protocol's, not -1"),
        (["lstm", "--reference", "nowhere.csv"], "--reference: nowhere.csv does not exist"),
        (["lstm", "--model.ratio", "1:0"], "Unrecognized"),
    ):
        assert main(["climb", *words, *rest]) == 2
        said = capsys.readouterr().err
        assert message in said and said.count("\n") == 1, said
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(("name", "changes"), some(ROWS))
def test_a_row_of_the_reference_table_is_of_the_suites_size(name: str, changes: dict[str, object]) -> None:
    model = climber(find_model(name), changes)
    within = 0.26 if name == "log_linear_attention" else 0.08  # its records are of that size, and the table names it
    assert abs(active_parameters(model, SIZED_AT) / PROTOCOLS["climb-v1"].params - 1) < within
    of_run = identity_of(climb_runs(model, seeds=1)[-1])
    assert of_run.protocol == "climb-v1"
    assert of_run.settings == {f"model.{key}": value for key, value in changes.items()}  # and no width


def test_no_row_stands_twice_and_no_run_is_another() -> None:
    assert len({(name, *changes.items()) for name, changes in ROWS}) == len(ROWS) >= 24
    runs = climb_runs(climber(find_model("lstm")))
    assert len({run.run_id for run in runs}) == len(runs) == 72
    assert [run.seed for run in runs] == sorted(run.seed for run in runs)  # the first seed of all rungs first


def test_a_width_of_ones_own_is_part_of_the_label() -> None:
    wide = climb_runs(climber(find_model("lstm"), {"d_model": 32}))[0]
    assert identity_of(wide).model == "lstm (d_model=32)"
    assert identity_of(climb_runs(climber(find_model("lstm")))[0]).model == "lstm"


def test_a_model_that_breaks_takes_no_other_with_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    climbed = []

    def climbs(model: ModelConfig, options: object, engine: object, *, again: list[str]) -> int:
        climbed.append(model.name)
        if model.name == "gru":
            raise RuntimeError("it breaks")
        return 0

    monkeypatch.setattr(climbing, "_climb", climbs)
    monkeypatch.setattr(rows, "ROWS", (("lstm", {}), ("gru", {}), ("no_such", {}), ("rnn", {})))
    words = ["climb", "--all", "--exec.results", str(tmp_path)]
    assert main(words) == 1
    said = capsys.readouterr().err
    assert climbed == ["lstm", "gru", "rnn"] and said.count("\n") == 2
    assert (
        "ladder: gru: failed: RuntimeError: it breaks" in said and "no_such: failed: ValueError: unknown model" in said
    )
    assert main([*words, "--protocol", "xlstm"]) == 2, "a mistake in the line is no model's fault"
