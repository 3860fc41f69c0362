"""An edited plugin's results are not printed again, gone on with or put into one cell with those of before."""

import json
import re
import subprocess
from pathlib import Path

import pandas as pd
import pytest

from chomsky_ladder.harness.cli.main import main
from chomsky_ladder.harness.config.exec import Exec
from chomsky_ladder.harness.config.origin import load_words, origin
from chomsky_ladder.harness.config.registry import find_model, load_plugin
from chomsky_ladder.harness.stats.cells import headline
from chomsky_ladder.harness.store import checkpoint
from chomsky_ladder.harness.store.checkout import commit_of
from chomsky_ladder.harness.store.folder import RunFolder
from chomsky_ladder.harness.store.made_with import RAISE
from chomsky_ladder.harness.train.build import load
from chomsky_ladder.harness.train.loop import RunFailed, execute
from chomsky_ladder.harness.train.same_code import with_earlier_code
from chomsky_ladder.models.base import MODELS
from chomsky_ladder.models.lstm import LSTMConfig
from support.records_by_hand import frame, record
from support.small_runs import small

MODEL = '''"""Half an LSTM."""

from dataclasses import dataclass

from chomsky_ladder.models.base import register
from chomsky_ladder.models.lstm import LSTMConfig
from half_of_it import HALF


@register
@dataclass(frozen=True, kw_only=True)
class HalfConfig(LSTMConfig):
    name = "half_lstm"
    scale: float = HALF
'''
SMALL = "--protocol quick --train.steps 9 --train.batch 8 --train.stop-after 0 --eval.test 8 --eval.validation 8"
WORDS = ["run", "parity", "half_lstm", *SMALL.split(), "--model.d-model", "8", "--eval.every", "0", "--quiet"]


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "half_of_it.py").write_text("HALF = 0.5\n")
    path = tmp_path / "half.py"
    path.write_text(MODEL)
    return path


def run(plugin: Path, *words: str, results: str = "results") -> int:
    return main([*WORDS, *words, "--plugin", str(plugin), "--exec.results", str(plugin.parent / results)])


def only_folder(plugin: Path) -> Path:
    (folder,) = (plugin.parent / "results" / "runs").iterdir()
    return folder


def test_a_result_of_other_code_is_not_used_again(plugin: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(plugin) == 0 and run(plugin) == 0, "the same code, the same result"
    before = origin(find_model("half_lstm"))
    folder = only_folder(plugin)
    assert before is not None and [path.name for path in before.files] == ["half.py", "half_of_it.py"]
    plugin.write_text(MODEL + "# a comment\n")
    (plugin.parent / "a_new_one.py").write_text("MORE = 1\n")
    assert run(plugin) == 0, "a comment and a new file beside it change nothing"
    (plugin.parent / "half_of_it.py").write_text("HALF = 0.5 * 1\n")
    capsys.readouterr()
    assert run(plugin) == 2
    now = origin(find_model("half_lstm"))
    assert now is not None and now.digest != before.digest
    said = f"{folder.name} was made with half.py {before.digest}, now {now.digest}: {RAISE}, or ladder clean "
    assert capsys.readouterr().err == f"ladder: {said}{folder.name}\n"
    plugin.write_text(MODEL.replace('name = "half_lstm"', 'name, version = "half_lstm", 2'))
    assert run(plugin) == 0, "another version is another run"


def test_a_refusal_is_all_that_is_said(plugin: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [word for word in WORDS if word not in ("--protocol", "quick", "--quiet")]
    words += ["--plugin", str(plugin), "--exec.results", str(plugin.parent / "results"), "--exec.device", "cpu"]
    assert main(words) == 0 and "which a CPU carries" in capsys.readouterr().err
    plugin.write_text(MODEL + "EDITED = True\n")
    assert main(words) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f"{only_folder(plugin).name} was made with half.py" in line


def test_another_plugin_of_the_same_name_is_told_so(plugin: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(plugin) == 0
    folder, other = only_folder(plugin), plugin.with_name("other.py")
    other.write_text(MODEL + 'SOMEBODY = "else"\n')
    MODELS[:] = [cls for cls in MODELS if cls.name != "half_lstm"]  # as in another process
    capsys.readouterr()
    assert run(other) == 2
    said = capsys.readouterr().err
    cure = f"call that model half_lstm otherwise, name another results folder, or ladder clean {folder.name}\n"
    assert f"{folder.name} was made with half.py " in said and ", now other.py " in said and said.endswith(cure)
    assert run(plugin) == 2, "two of one name at once"
    assert "2 models are called 'half_lstm': " in capsys.readouterr().err
    MODELS[:] = [cls for cls in MODELS if cls.name != "half_lstm"]
    assert run(other, results="others") == 0


def test_a_checkpoint_of_other_code_is_not_gone_on_with(plugin: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(plugin) == 0
    folder = only_folder(plugin)
    (folder / "result.json").unlink()
    plugin.write_text(MODEL + "EDITED = True\n")
    assert run(plugin) == 2
    assert f"{folder.name} was made with half.py" in capsys.readouterr().err
    with pytest.raises(ValueError, match=r"^the checkpoint of \S+ at step 9 was made with half\.py \w+, now \w+"):
        load(folder.name, results=plugin.parent / "results")
    plugin.write_text(MODEL)
    assert run(plugin) == 0, "what it was"


def test_a_sweep_refuses_before_it_trains(plugin: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = plugin.parent / "some.py"
    script.write_text(
        "from dataclasses import replace\nfrom chomsky_ladder import grid\n"
        "def runs():\n    runs = grid('parity', 'half_lstm', protocol='quick')[:3]\n"
        "    return [replace(r, train=replace(r.train, steps=2, batch=4, stop_after=0),\n"
        "                    eval=replace(r.eval, test=8, validation=8, every=0)) for r in runs]\n"
    )
    words = ["sweep", str(script), "--plugin", str(plugin), "--exec.results", str(plugin.parent / "results"), "--quiet"]
    assert main(words) == 0
    plugin.write_text(MODEL + "EDITED = True\n")
    for command in ("sweep", "plan"):
        assert main([command, *(word for word in words[1:] if command == "sweep" or word != "--quiet")]) == 2
        assert "(and 2 more) was made with half.py" in capsys.readouterr().err


def test_a_plugin_that_breaks_as_it_is_made_is_a_line(plugin: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plugin.write_text(MODEL + "\n    def block(self, layer):\n        return {}['none']\n")
    assert run(plugin) == 2
    assert capsys.readouterr().err == "ladder: half_lstm cannot be made: KeyError: 'none' (half.py:17)\n"


def test_what_different_code_made_is_not_pooled(plugin: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(plugin, "--seed", "0") == 0
    assert main(["table", "--results", str(plugin.parent / "results")]) == 0
    records = pd.read_csv(plugin.parent / "results" / "records.csv")
    assert list(records)[-1] == "sources" and records["sources"][0].startswith("model half_lstm of half.py ")
    plugin.write_text(MODEL + "EDITED = True\n")
    assert run(plugin, "--seed", "1") == 0
    capsys.readouterr()
    assert main(["table", "--results", str(plugin.parent / "results")]) == 2
    said = capsys.readouterr().err
    assert said.count("was made with model half_lstm of half.py") == 1 and "no table has both" in said
    for command in re.findall("`ladder (.+?)`", said):
        assert main([*command.split(), "--results", str(plugin.parent / "results"), "--yes"]) == 0
    assert main(["table", "--results", str(plugin.parent / "results")]) == 0, "what it says to do mends it"


@pytest.mark.full
@pytest.mark.parametrize("command", ["table", "figures"])
def test_a_row_of_other_code_is_said_to_be_one(
    command: str, plugin: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    results = ["--results", str(plugin.parent / "results")]
    assert run(plugin) == 0
    then = origin(find_model("half_lstm"))
    capsys.readouterr()
    assert then is not None and main([command, *results]) == 0
    assert "has changed" not in capsys.readouterr().err, "nothing was edited"
    (plugin.parent / "half_of_it.py").write_text("HALF = 0.25\n")
    monkeypatch.chdir("/")
    assert main([command, *results]) == 0
    said = capsys.readouterr().err
    assert said.count(f"ladder: half.py has changed since it made 1 of the runs shown ({then.digest}, now ") == 1
    assert f"{RAISE} and run them anew" in said
    plugin.unlink()
    assert main([command, *results]) == 0
    assert "has changed" not in capsys.readouterr().err, "of what is gone nothing is known"


def test_a_row_of_an_edited_package_is_said_to_be_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "halves"
    package.mkdir()
    (package / "__init__.py").write_text("from halves.half_of_it import HALF\nfrom halves import half\n")
    (package / "half_of_it.py").write_text("HALF = 0.5\n")
    (package / "half.py").write_text(MODEL.replace("from half_of_it", "from halves"))
    monkeypatch.syspath_prepend(str(tmp_path))
    results = ["--results", str(tmp_path / "results")]
    assert main([*WORDS, "--plugin", "halves", "--exec.results", results[1]]) == 0
    capsys.readouterr()
    assert main(["table", *results]) == 0
    assert capsys.readouterr().err == ""
    (package / "half_of_it.py").write_text("HALF = 0.25\n")
    assert main(["table", *results]) == 0
    assert "ladder: halves.half has changed since it made 1 of the runs shown" in capsys.readouterr().err


def test_records_without_plugins_have_no_such_column(tmp_path: Path) -> None:
    words = [word if word != "half_lstm" else "lstm" for word in WORDS]
    assert main([*words, "--exec.results", str(tmp_path)]) == 0
    assert main(["table", "--results", str(tmp_path)]) == 0
    assert "sources" not in (tmp_path / "records.csv").read_text()
    rows = [record(seed=seed, sources=made) for seed, made in enumerate(["", "model lstm of a.py 0", ""])]
    assert len(headline(frame(*rows))) == 3, "of those of before nothing is known"
    with pytest.raises(ValueError, match=r"xlstm, parity, lstm: \S+ was made with .* a\.py 0, \S+ with .* b\.py 1"):
        headline(frame(*rows, record(seed=3, sources="model lstm of b.py 1")))


def test_a_result_of_before_is_held_to_the_file(plugin: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The first results have the hash of one file."""
    assert run(plugin) == 0
    path = only_folder(plugin) / "result.json"
    tree = json.loads(path.read_text())
    for name in ("plugins", "version", "distribution"):
        tree["provenance"].pop(name)
    tree.pop("sha256")
    path.write_text(json.dumps(tree))
    assert run(plugin) == 0
    plugin.write_text(MODEL + "EDITED = True\n")
    assert run(plugin) == 2
    assert "(that file alone)" in capsys.readouterr().err


def test_a_resumed_run_names_the_code_of_every_session(plugin: Path) -> None:
    assert run(plugin) == 0
    folder = only_folder(plugin)
    content = checkpoint.newest(folder)
    assert content is not None and content["code"][-1]["plugins"]["model half_lstm"]["from"] == "half.py"
    made = json.loads((folder / "result.json").read_text())["provenance"]
    assert with_earlier_code(made, content) == made
    earlier = {**content["code"][0], "commit": "c0ffee"}
    sessions = with_earlier_code(made, {"code": [earlier]})["sessions"]
    assert [session["commit"] for session in sessions] == ["c0ffee", made["commit"]]


def test_an_edit_of_ours_that_nobody_committed_is_not_gone_on_with(tmp_path: Path) -> None:
    (run,) = small(steps=4)
    settings = Exec(results=tmp_path, checkpoint_every=2)
    execute(run, settings, quiet=True)
    folder = RunFolder(tmp_path, run.run_id).path
    content = checkpoint.newest(folder)
    assert content is not None and set(content["code"][-1]["sources"]) == {"CycleNav", "LSTMConfig"}
    for dirty in (False, True):
        content["code"][-1] |= {"dirty": dirty, "sources": {"CycleNav": "0" * 12}}
        checkpoint.write(checkpoint.path_of(folder, 4), content)
        (folder / "result.json").unlink()
        if dirty:
            with pytest.raises(RunFailed, match=r"was made with another cycle_nav\.py, which was not committed"):
                execute(run, settings, quiet=True)
        else:
            assert execute(run, settings, quiet=True)["status"] == "done", "versions say when committed code changes"


def test_whose_code_it_is(plugin: Path) -> None:
    load_plugin(str(plugin))
    cls = find_model("half_lstm")
    assert origin(LSTMConfig) is None
    assert list(load_words([("half_lstm", cls.__module__, "")])) == [str(plugin)]
    found = origin(cls)
    assert found is not None and found.plain()["commit"] == "unknown"
    git = ["git", "-C", str(plugin.parent), "-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "add", "half.py", "half_of_it.py"], check=True)
    subprocess.run([*git, "commit", "-qm", "x"], check=True)
    assert len(commit_of(found.files)["commit"]) == 40 and commit_of(found.files)["dirty"] is False
