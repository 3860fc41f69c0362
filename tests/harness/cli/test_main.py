"""Every `ladder` command as its user types it, and every mistake as one line with exit code 2."""

import importlib
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import chomsky_ladder
from chomsky_ladder.harness.cli import listing, tables
from chomsky_ladder.harness.cli import main as cli
from chomsky_ladder.harness.cli.commands import GROUPS, usage
from chomsky_ladder.harness.config.registry import all_models, all_tasks
from chomsky_ladder.harness.store import checkout
from chomsky_ladder.harness.train.loop import Loop
from chomsky_ladder.tasks.base import LEVELS
from support.cases import some

SMALL = (
    *("--train.steps", "12", "--train.batch", "4", "--exec.log-every", "4", "--train.precision", "fp32"),
    *("--model.d-model", "8", "--eval.test", "24", "--eval.validation", "8", "--eval.every", "6"),
    *("--eval.lengths", "10", "20", "--eval.bins", "10", "20", "--eval.extrapolate", "30", "--eval.extrapolation", "4"),
)
Capture = pytest.CaptureFixture[str]


def ladder(capsys: Capture, *words: str) -> str:
    code = cli.main(words)
    said = capsys.readouterr()
    assert code == 0, said.err
    return said.out


def mistake(capsys: Capture, *words: str) -> str:
    """The one line a mistake is answered with."""
    code = cli.main(words)
    said = capsys.readouterr()
    assert code == 2, (code, said)
    assert said.out == ""
    assert said.err.startswith("ladder: ")
    assert said.err.count("\n") == 1, said.err
    return said.err


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two finished runs."""
    folder = tmp_path_factory.mktemp("results")
    for seed in ("0", "1"):
        words = ["run", "parity", "lstm", *SMALL, "--seed", seed, "--exec.results", str(folder), "--quiet"]
        assert cli.main(words) == 0
    return folder


def run_ids(results: Path) -> list[str]:
    return sorted(path.name for path in (results / "runs").iterdir())


@pytest.mark.full
def test_list(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = json.loads(ladder(capsys, "list", "--json"))
    monkeypatch.setattr(listing, "listed", lambda: tree)  # which takes seconds
    shown, full = ladder(capsys, "list"), ladder(capsys, "list", "tasks", "models")
    assert sorted(task["name"] for task in tree["tasks"]) == sorted(all_tasks())
    assert sorted(model["name"] for model in tree["models"]) == sorted(all_models())
    assert "49 tasks\n  regular  " in shown and max(map(len, shown.splitlines())) <= 110
    assert "\nTasks, regular\n" in full and "      floors " in full and "state of " in full
    assert tree["problems"] == []
    assert all(name in text for name in [*all_tasks(), *all_models()] for text in (shown, full))


def test_some_of_the_list(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    tree: dict[str, Any] = {"levels": LEVELS, "problems": []}
    tree["tasks"] = [{"name": name, "level": found[0].level} for name, found in all_tasks().items()]
    tree["models"] = [{"name": name, "family": found[0].family} for name, found in all_models().items()]
    monkeypatch.setattr(listing, "listed", lambda: tree)

    def names(*words: str) -> list[str]:
        found = json.loads(ladder(capsys, "list", *words, "--json"))
        return sorted(part["name"] for kind in ("tasks", "models") for part in found[kind])

    models = sorted(name for name, found in all_models().items() if found[0].family == "state space")
    assert {"mamba", "s4"} < set(models)
    assert names("models", "state_space") == names("state space") == models
    assert names("rwkv*", "lstm") == ["lstm", "rwkv4", "rwkv5", "rwkv6", "rwkv7"]
    assert names("counter") == ["counter_language", "majority", "majority_count"]
    assert names("tasks") == sorted(all_tasks()) and set(names("tasks", "regular")) < set(all_tasks())
    assert "did you mean lstm" in mistake(capsys, "list", "lstn")
    assert "did you mean moe or mano?" in mistake(capsys, "list", "nope")
    assert "no models of the name, class or family 'parity'" in mistake(capsys, "list", "models", "parity")


@pytest.mark.parametrize("name", some([*all_tasks(), *all_models()], always=6))
def test_describe(name: str, capsys: Capture) -> None:
    tree = json.loads(ladder(capsys, "describe", name, "--json"))
    assert tree["name"] == name
    assert all(setting["help"] for setting in tree["settings"]), "a setting has no sentence under it"
    shown = ladder(capsys, "describe", name)
    for setting in tree["settings"]:
        assert setting["name"].replace("_", "-") in shown
    if name in all_tasks():
        assert "->" in tree["example"]
    else:
        assert tree["parameters"] > 0


def test_describe_takes_settings(capsys: Capture) -> None:
    small = json.loads(ladder(capsys, "describe", "lstm", "--json", "--model.d-model", "8"))
    assert small["parameters"] == 2 * 12 * 8 + 2 * (8 * 8 * 8 + 32)
    assert small["state_bytes_at_length_256"] == 2 * 2 * 8 * 4


@pytest.mark.parametrize("task", sorted(all_tasks()))
def test_sample(task: str, capsys: Capture) -> None:
    rows = [json.loads(line) for line in ladder(capsys, "sample", task, "--count", "3", "--json").splitlines()]
    assert len(rows) == 3
    vocab = all_tasks()[task][0]().vocab
    for row in rows:
        assert set(row["input"]) | set(row["answer"]) <= set(vocab)
        assert len(row["read_at"]) == len(row["answer"])
        assert row["read_at"][-1] < len(row["input"])
    assert len(ladder(capsys, "sample", task, "--count", "5").splitlines()) == 5


def test_sample_of_a_length_and_with_settings(capsys: Capture) -> None:
    words = ("--length", "9", "--json", "--task.num-symbols", "2", "--task.query", "token")
    row = json.loads(ladder(capsys, "sample", "reverse_string", "--count", "1", *words))
    assert row["length"] == 9
    assert row["input"][:4] == row["answer"][::-1]
    assert row["input"][4:] == ["PAD"] * 4
    assert set(row["answer"]) <= {"0", "1"}


def test_run_prints_its_scores(results: Path, capsys: Capture) -> None:
    words = ("run", "parity", "lstm", *SMALL, "--exec.results", str(results))
    shown = ladder(capsys, *words)
    assert "test" in shown
    assert "floors" in shown
    assert run_ids(results)[0] in shown
    result = json.loads(ladder(capsys, *words, "--json"))
    assert result["steps"] == 12


def test_table(results: Path, capsys: Capture) -> None:
    shown = ladder(capsys, "table", "--results", str(results))
    again = ladder(capsys, "table", "--results", str(results))
    assert shown == again == (results / "tables" / "accuracy.md").read_text()
    assert "/2 |" in shown
    assert "| LSTM (d_model=8) |" in shown
    assert "train.steps=12" in shown
    assert (results / "tables" / "accuracy.csv").read_text().count("\n") == 2


def test_errors(results: Path, capsys: Capture) -> None:
    run_id = run_ids(results)[0]
    tree = json.loads(ladder(capsys, "errors", run_id, "--results", str(results), "--json"))
    stored = json.loads((results / "runs" / run_id / "result.json").read_text())
    assert tree["accuracy_by_slot"]["0"] == pytest.approx(stored["test"]["accuracy"])
    wrong = sum(confusion["count"] for confusion in tree["confusion"])
    assert wrong == 24 - sum(stored["test"]["counts"]["correct"])
    assert len(tree["strings"]) == min(10, wrong)
    for string in tree["strings"]:
        assert string["said"] != string["answer"]
        assert (string["input"].split().count("b") % 2 == 1) == (string["answer"] == "b")
    assert "strings it gets wrong" in ladder(capsys, "errors", run_id, "--results", str(results))


def test_diff(results: Path, capsys: Capture) -> None:
    a, b = run_ids(results)
    assert json.loads(ladder(capsys, "diff", a, b, "--results", str(results), "--json")) == {"seed": [0, 1]}
    assert ladder(capsys, "diff", a, a, "--results", str(results)) == "the same run\n"


def test_doctor(capsys: Capture) -> None:
    tree = json.loads(ladder(capsys, "doctor", "--json"))
    assert tree["kernels"]["torch.lstm"].startswith("ready")
    assert tree["kernels"]["mamba_ssm"].startswith("missing: ")
    assert "torch" in ladder(capsys, "doctor")


def test_check(capsys: Capture) -> None:
    assert ladder(capsys, "check", "parity").endswith("parity: conforms\n")


def test_version(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = ladder(capsys, "--version")
    assert shown.startswith("chomsky-ladder ")
    if checkout.git_state()["dirty"] is not None:
        assert checkout.git_state()["commit"][:12] in shown
    monkeypatch.setattr(checkout, "git_state", lambda: {"commit": "0123456789abcdef", "dirty": True})
    monkeypatch.setattr(checkout, "version", lambda name: "1.2")
    assert checkout.version_line() == "chomsky-ladder 1.2 (commit 0123456789ab, changed since)"
    monkeypatch.setattr(checkout, "git_state", lambda: {"commit": "unknown", "dirty": None})
    assert checkout.version_line() == "chomsky-ladder 1.2"


def test_help(capsys: Capture) -> None:
    shown = ladder(capsys, "--help")
    listed = re.findall(r"^  ([\w-]+) {2,}\S", shown, flags=re.MULTILINE)
    assert listed == list(cli.COMMANDS), "each command once, by groups"
    assert {command.group for command in cli.COMMANDS.values()} == set(GROUPS)
    assert all(f"\n{group}: " in shown for group in GROUPS)
    assert all(len(line) < 60 for line in usage(60).splitlines())
    with pytest.raises(SystemExit) as stop:
        cli.main(["run", "parity", "lstm", "--help"])
    assert stop.value.code == 0
    assert "--train.weight-decay" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("lst",), "no such command: 'lst'; did you mean list?"),
        (("run",), "which run? give a TASK and a MODEL"),
        (("run", "partiy", "lstm"), "unknown task 'partiy'; did you mean parity?"),
        (("run", "lstm", "parity", "--quiet"), "the task comes first, `ladder run parity lstm`"),
        (("run", "parity", "lstmm"), "unknown model 'lstmm'; did you mean lstm"),
        (("run", "parity", "lstm", "--train.lrr", "1"), "--train.lrr, 1; did you mean --train.lr?"),
        (("run", "parity", "lstm", "--train.steps", "many"), "--train.steps: invalid literal"),
        (("run", "parity", "lstm", "--train.steps"), "Missing value for argument '--train.steps'"),
        (("run", "parity", "lstm", "--train.steps", "0"), "train.steps must be at least 1, not 0"),
        (("run", "parity", "lstm", "--train.lengths", "3", "9999999"), "train.lengths must be at most 4194304, not"),
        (("run", "parity", "lstm", "--train.curriculum", "9", "9999999"), "train.curriculum must be at most 4194304"),
        (("run", "parity", "lstm", "--eval.lengths", "3", "9999999"), "eval.lengths must be at most 4194304, not"),
        (("run", "parity", "lstm", "--eval.extrapolate", "9999999"), "eval.extrapolate must be at most 4194304, not"),
        (("run", "parity", "lstm", "--eval.bins", "1", "999999999999"), "eval.bins must be at most 4194304, not"),
        (("run", "parity", "lstm", "--train.steps", "9" * 24), "train.steps must be at most 2147483647, not 9999"),
        (("run", "parity", "lstm", "--eval.test", "9" * 24), "eval.test must be at most 2147483647, not 9999"),
        (("run", "parity", "lstm", "--exec.threads", "100000"), "exec.threads must be at most 1024, not 100000"),
        (("run", "parity", "lstm", "--train.base", "pariti", "--train.lora-rank", "2"), "no run 'pariti' under "),
        (("run", "parity", "lstm", "--eval.extrapolate", *map(str, range(1000, 4000))), "a record has room for 10,000"),
        (("export", "parity", "--out=x", "--lengths", "3", "9999999"), "--lengths must be at most 4194304, not"),
        (("run", "parity", "lstm", "--train.lr", "nan"), "train.lr must be positive, not nan"),
        (("run", "parity", "lstm", "--train.precision", "fp8"), "invalid choice 'fp8'"),
        (("table", "--format", "pdf"), "Expected one of csv, html, latex, markdown, text.\n"),
        (("run", "parity", "lstm", "--train.precision", "8"), "Expected one of fp32, bf16, fp64.\n"),
        (("run", "parity", "lstm", "--model.dropout", "1"), "dropout must lie in [0, 1), not 1.0"),
        (("run", "parity", "transformer", "--model.num-heads", "3"), "does not split into 3 heads"),
        (("run", "parity", "lstm", "--eval.lengths", "1", "1"), "parity has no string of length 1..1"),
        (("run", "parity", "lstm", "--protocol", "xlst"), "unknown protocol 'xlst'; did you mean xlstm"),
        (("run", "parity", "lstm", "--protocol"), "--protocol needs a value"),
        (("run", "parity", "lstm", "--exec.device", "warp"), "no such device: 'warp'"),
        (("run", "parity", "lstm", "--exec.device", "cuda:77"), "'cuda:77' asked for, but this machine has"),
        (("run", "parity", "lstm", "--exec.threads", "0"), "exec.threads must be at least 1"),
        (("run", "parity", "lstm", "--seed", "-1"), "seed must be in 0..2**32-1, not -1"),
        (("run", "reverse_string", "encoder", "--task.decode", "teacher"), "which encoder cannot do"),
        (("run", "cycle_nav", "lstm", "--task.cycle", "1"), "cycle_nav: cycle must lie in 2..1000, not 1"),
        (("list", "--jsn"), "--jsn; did you mean --json?"),
        (("describe",), "ladder describe needs the NAME of a task or model"),
        (("describe", "pairity"), "unknown task or model 'pairity'; did you mean parity"),
        (("sample", "parity", "--count", "0"), "--count must lie in 1..1000000, not 0"),
        (("sample", "parity", "--length", "100000000"), "--count 3 of --length 100,000,000 is more than 4,194,304"),
        (("sample", "bucket_sort", "--length", "5"), "bucket_sort has no string of length 5..5; it has"),
        (("sample", "lstm"), "unknown task 'lstm'"),
        (("check",), "ladder check needs the NAME"),
        (("errors", "nothing", "--results", "nowhere"), "no run 'nothing' under nowhere/runs (0 runs there)"),
        (("climb", "lstm", "--rungs", "parity", "srot"), "no rung or task of the climb is called 'srot'; did you mean"),
        (("table", "--results", "nowhere_at_all"), "no finished runs under nowhere_at_all"),
        (("lsit",), "no such command: 'lsit'; did you mean list?"),
        (("xyzzy",), "no such command: 'xyzzy'; see --help"),
        (("status", "--plugin"), "--plugin needs a value"),
        (("status", "--alll"), "--alll; did you mean --all?"),
        (("clean",), "name a RUN_ID, --failed, --preempted, --unfinished, --checkpoints or --records"),
        (("clean", "../parity"), "'../parity' is no run under"),
        (("merge",), "ladder merge needs the FOLDER to take runs from"),
        (("merge", "nowhere"), "nowhere has neither runs/ nor records.csv"),
        (("list", "--plugin", "no_such_module"), "plugin no_such_module does not import: ModuleNotFoundError"),
        (("list", "--plugin", "gone.py"), "no such plugin file: gone.py"),
        (("list", "--plugin", ""), "--plugin needs a folder, a file or a module, not an empty name"),
        (("run", "parity", "lstm", "--exec.results", ""), "exec.results needs a path, not an empty one"),
        (("figures", "--out", "/dev/null/x"), "cannot write to /dev/null/x: /dev/null is a file and no folder"),
        (("throughput", "--out", "/dev/null"), "cannot write to /dev/null: /dev/null is a file and no folder"),
        (("figures", "--out="), "out needs a path, not an empty one"),
        (("merge", ""), "folders needs a path, not an empty one"),
        (("climb", "lstm", "--seeds", "-1"), "--seeds is how many, 0 for the protocol's, not -1"),
    ],
)
def test_mistakes(
    words: tuple[str, ...], says: str, capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LADDER_RESULTS", str(tmp_path / "results"))
    assert says in mistake(capsys, *words)
    assert list(tmp_path.iterdir()) == [], "something was written before the mistake was seen"


def test_an_ambiguous_run_id(results: Path, capsys: Capture) -> None:
    assert "'parity' fits 2 runs: parity-lstm-s0-" in mistake(capsys, "errors", "parity", "--results", str(results))


def test_a_results_folder_that_is_a_file(tmp_path: Path, capsys: Capture) -> None:
    place = tmp_path / "file"
    place.touch()
    assert "cannot write results to" in mistake(capsys, "run", "parity", "lstm", *SMALL, "--exec.results", str(place))


def test_a_run_without_a_protocol_has_the_one_that_a_cpu_carries(tmp_path: Path, capsys: Capture) -> None:
    words = ["run", "parity", "lstm", *SMALL, "--exec.results", str(tmp_path)]
    assert cli.main([*words, "--exec.device", "cpu", "--json"]) == 0
    said = capsys.readouterr()
    assert json.loads(said.out)["protocol_name"] == "xlstm_cpu"
    told = (
        "protocol xlstm_cpu, which a CPU carries; --protocol xlstm_20k, 20,000 steps of 256 strings, takes hours here"
    )
    assert said.err.splitlines()[0] == told
    for quiet in (["--quiet"], ["--protocol", "quick"]):
        assert cli.main([*words, *quiet]) == 0
        assert "which a CPU carries" not in capsys.readouterr().err


def test_bf16_on_a_cpu_without_it_is_advised_against_where_nobody_chose_it(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = [word for word in SMALL if word not in ("--train.precision", "fp32")]
    words = ["run", "parity", "lstm", *small, "--exec.results", str(tmp_path), "--exec.device", "cpu", "--protocol"]
    for rest, has_it, is_told in (
        (["xlstm_20k"], False, True),
        (["xlstm_20k"], True, False),
        (["xlstm_20k", "--train.precision", "bf16"], False, False),
        (["quick"], False, False),
    ):
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda has_it=has_it: {"avx2": True, "avx512_bf16": has_it})
        assert cli.main([*words, *rest]) == 0
        assert ("--train.precision fp32 is faster, and another run" in capsys.readouterr().err) == is_told


def test_two_plugins_of_one_name(tmp_path: Path, capsys: Capture) -> None:
    text = Path(all_models()["lstm"][0].__module__.replace(".", "/") + ".py")
    source = (Path(__file__).parents[3] / text).read_text()
    plugin = tmp_path / "my_lstm.py"
    plugin.write_text(source)
    words = ("run", "parity", "lstm", "--plugin", str(plugin))
    said = mistake(capsys, *words)
    assert "there is a model 'lstm' here already, which is taken: call yours otherwise" in said
    assert str(plugin) in said
    assert "transformer" in ladder(capsys, "describe", "transformer")


def test_a_broken_plugin_is_named(tmp_path: Path, capsys: Capture) -> None:
    plugin = tmp_path / "broken.py"
    plugin.write_text("import nothing_of_this_name\n")
    assert "broken.py does not import: ModuleNotFoundError" in mistake(capsys, "list", "--plugin", str(plugin))


def test_a_plugin_without_a_docstring_is_said_to_have_none(tmp_path: Path, capsys: Capture) -> None:
    plugin = tmp_path / "silent.py"
    plugin.write_text(
        "from dataclasses import dataclass\n"
        "from chomsky_ladder.models.base import register\n"
        "from chomsky_ladder.models.lstm import LSTMConfig\n"
        "@register\n@dataclass(frozen=True, kw_only=True)\nclass SilentConfig(LSTMConfig):\n    name = 'silent_lstm'\n"
    )
    assert ladder(capsys, "describe", "silent_lstm", "--plugin", str(plugin)).startswith("no documentation\n\n")


def test_an_interrupt_is_one_line(tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*of_what: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(Loop, "go", interrupted)
    assert cli.main(["run", "parity", "lstm", *SMALL, "--exec.results", str(tmp_path), "--quiet"]) == 130
    assert capsys.readouterr().err.startswith("ladder: interrupted; a run goes on from its last checkpoint")
    monkeypatch.setattr(tables, "table", interrupted)
    assert cli.main(["table"]) == 130
    assert capsys.readouterr().err == "ladder: interrupted; the same command begins again\n"


@pytest.mark.parametrize("command", cli.COMMANDS)
def test_every_command_is_where_the_list_says(command: str) -> None:
    module, function = cli.COMMANDS[command].place.split(":")
    assert callable(getattr(importlib.import_module(f"chomsky_ladder.harness.cli.{module}"), function))


@pytest.mark.parametrize("option", ["--plugin", "--plugin="])
def test_a_plugin_is_loaded_for_any_command(option: str, tmp_path: Path, capsys: Capture) -> None:
    plugin = tmp_path / "loud.py"
    plugin.write_text("print('loaded')\n")
    words = [f"{option}{plugin}"] if option.endswith("=") else [option, str(plugin)]
    assert cli.main(["status", *words, "--results", str(tmp_path / "nowhere")]) == 2
    said = capsys.readouterr()
    assert said.out == "loaded\n" and said.err.splitlines()[-1].startswith("ladder: no runs under")


def test_the_package_gives_its_names_when_asked() -> None:
    assert [getattr(chomsky_ladder, name).__name__ for name in chomsky_ladder.__all__] == chomsky_ladder.__all__
    assert dir(chomsky_ladder) == chomsky_ladder.__all__
    with pytest.raises(AttributeError, match="no attribute 'swep'"):
        _ = chomsky_ladder.swep


def test_a_closed_pipe_is_no_error() -> None:
    command = f"{sys.executable} -m chomsky_ladder sample parity --count 5000 | head -1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60)
    assert done.stdout.count("\n") == 1
    assert done.stderr == ""
