"""Plugins come from files, modules, rooms and entry points; what is wrong with one is named and stops only its name."""

import os
import re
import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
import torch

from chomsky_ladder import models, tasks
from chomsky_ladder.harness.cli.main import main
from chomsky_ladder.harness.config import rooms
from chomsky_ladder.harness.config.exec import Exec
from chomsky_ladder.harness.config.protocols import preset_run
from chomsky_ladder.harness.config.registry import (
    all_models,
    all_tasks,
    discover,
    find_model,
    find_part,
    find_task,
    load_plugin,
    problems,
)
from chomsky_ladder.harness.config.run import Run
from chomsky_ladder.models import kernels
from chomsky_ladder.models.base import MODELS
from chomsky_ladder.models.block import Context
from chomsky_ladder.models.kernels.choose import demand
from chomsky_ladder.models.kernels.kernel import KERNELS
from chomsky_ladder.models.lstm import LSTMConfig
from chomsky_ladder.models.mamba import MambaConfig
from chomsky_ladder.tasks.base import TASKS
from chomsky_ladder.tasks.draw import Draw
from chomsky_ladder.tasks.parity import Parity

PLUGIN = '''"""A task and a model of somebody's own."""

from dataclasses import dataclass

from chomsky_ladder.models.base import register as register_model
from chomsky_ladder.models.lstm import LSTMConfig
from chomsky_ladder.models.mamba import MambaConfig
from chomsky_ladder.tasks.base import register as register_task
from chomsky_ladder.tasks.parity import Parity


@register_task
@dataclass(frozen=True, kw_only=True)
class Walnut(Parity):
    name = "walnut"
    size_of_shell: int = 3


@register_model
@dataclass(frozen=True, kw_only=True)
class Almond(LSTMConfig):
    name = "almond"
'''
KERNEL = '''"""A kernel of somebody's own."""

from chomsky_ladder.models.kernels.kernel import Kernel, register
from chomsky_ladder.models.operations.scan.reference import scan_loop

register(
    Kernel(
        name="pecan_scan",
        computes="scan_loop",
        reference="chomsky_ladder.models.operations.scan.reference.scan_loop",
        call=scan_loop,
        serves=("mamba",),
        device="any",
        stacks=True,
    )
)
'''
BROKEN = {
    "syntax": "def (:",
    "name": "undefined_name",
    "import": "import no_such_module_anywhere",
    "lines": "raise RuntimeError('first line\\nsecond line')",
    "silent": "raise KeyError",
    "value": "raise ValueError('of its own')",
    "exit": "raise SystemExit('goodbye')",
}


@pytest.fixture(autouse=True)
def registries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Forget everything that a test registers or imports from its own folder."""
    discover()
    before = TASKS.copy(), MODELS.copy(), KERNELS.copy(), rooms._problems.copy()
    yield
    monkeypatch.undo()
    TASKS[:], MODELS[:], KERNELS[:], rooms._problems[:] = before
    for name, module in list(sys.modules.items()):
        if str(tmp_path) in (getattr(module, "__file__", None) or ""):
            del sys.modules[name]
            package, _, attribute = name.rpartition(".")
            if package:
                delattr(sys.modules[package], attribute)


def plugin(path: Path, text: str = PLUGIN) -> Path:
    path.write_text(text)
    return path


def refusal(name: str, kind: str = "part") -> str:
    find = {"task": find_task, "model": find_model, "part": find_part}[kind]
    with pytest.raises(ValueError) as caught:
        find(name)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_the_rooms_are_discovered() -> None:
    assert find_task("parity") is Parity
    assert find_model("lstm") is LSTMConfig
    assert find_part("parity") == ("task", Parity)
    assert find_part("lstm") == ("model", LSTMConfig)
    assert all(len(classes) == 1 for classes in [*all_tasks().values(), *all_models().values()])
    assert not problems()


def test_every_file_of_a_room_is_discovered() -> None:
    for room, found in ((tasks, all_tasks()), (models, all_models())):
        folder = Path(next(iter(room.__path__)))
        files = {path.stem for path in folder.glob("*.py") if re.search(r"^@register$", path.read_text(), re.M)}
        assert files == {classes[0].__module__.rpartition(".")[2] for classes in found.values()}


def test_an_unknown_name_gets_a_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rooms, "NAMED", [])
    yours = "One of yours: --plugin FILE"
    assert refusal("partiy", "task") == f"unknown task 'partiy'; did you mean parity? {yours}"
    assert refusal("lsmt", "model") == f"unknown model 'lsmt'; did you mean lstm or xlstm? {yours}"
    assert refusal("my_mean").endswith(f"? {yours}")
    rooms.NAMED.append("mine.py")
    assert refusal("partiy", "task") == "unknown task 'partiy'; did you mean parity?"
    assert "did you mean parity?" in refusal("parityy") and "did you mean" in refusal("tranformer")


def test_a_name_like_no_other_is_told_where_the_list_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rooms, "NAMED", [])
    yours = "; one of yours: --plugin FILE"
    assert refusal("qqqq", "task") == f"unknown task 'qqqq'; `ladder list` has all {len(all_tasks())}{yours}"
    assert refusal("qqqq", "model") == f"unknown model 'qqqq'; `ladder list` has all {len(all_models())}{yours}"
    assert "`ladder list` has all" in refusal("qqqq")


def test_a_plugin_file_brings_a_task_and_a_model(tmp_path: Path) -> None:
    load_plugin(str(plugin(tmp_path / "my nuts.py")))
    walnut, almond = find_task("walnut"), find_model("almond")
    assert find_part("walnut") == ("task", walnut) and find_part("almond") == ("model", almond)
    run = preset_run("walnut", "almond")
    assert run.task == walnut(size_of_shell=3) and isinstance(run.model, almond)
    assert Run.from_plain(run.plain()) == run
    batch = run.task.sample(Draw(seed=0, split="train", rows_B=torch.arange(2)), torch.tensor([4, 5]), 4)
    assert batch.length_B.tolist() == [3, 4]
    assert not problems()


def test_a_plugin_is_loaded_by_its_modules_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plugin(tmp_path / "nuts_as_a_module.py")
    monkeypatch.syspath_prepend(tmp_path)
    load_plugin("nuts_as_a_module")
    assert find_task("walnut").__module__ == "nuts_as_a_module"


def test_a_plugin_loaded_again_replaces_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    path = plugin(tmp_path / "nuts.py")
    load_plugin(str(path))
    written = path.stat()
    plugin(path, PLUGIN.replace("size_of_shell: int = 3", "size_of_shell: int = 4"))
    os.utime(path, ns=(written.st_atime_ns, written.st_mtime_ns))  # the same size and second, by which bytecode is kept
    load_plugin(str(path))
    assert find_task("walnut")().size_of_shell == 4
    assert not problems()


@pytest.mark.parametrize("defect", BROKEN)
def test_a_broken_plugin_file_is_named_in_one_line(defect: str, tmp_path: Path) -> None:
    path = plugin(tmp_path / "cracked.py", BROKEN[defect])
    with pytest.raises(ValueError, match=r"^plugin \S*cracked\.py does not import: \w+(Error|Exit)") as caught:
        load_plugin(str(path))
    assert "\n" not in str(caught.value)
    assert find_task("parity") is Parity


def test_a_plugin_broken_by_a_value_error_is_named_in_one_line(tmp_path: Path) -> None:
    path = plugin(tmp_path / "cracked.py", PLUGIN.replace("size_of_shell: int = 3", "shell: list = []"))
    with pytest.raises(ValueError, match=r"^plugin \S*cracked\.py does not import: ValueError: mutable default"):
        load_plugin(str(path))


@pytest.mark.parametrize("defect", sorted(BROKEN.keys() - {"syntax"}))  # of which nothing runs
def test_what_a_broken_plugin_registered_is_taken_back(defect: str, tmp_path: Path) -> None:
    before = TASKS.copy(), MODELS.copy()
    path = plugin(tmp_path / "cracked.py", PLUGIN + BROKEN[defect])
    with pytest.raises(ValueError, match="does not import"):
        load_plugin(str(path))
    assert before == (TASKS, MODELS)
    assert "unknown task" in refusal("walnut", "task") and "unknown model" in refusal("almond", "model")
    load_plugin(str(plugin(path, PLUGIN)))  # mended
    assert find_task("walnut").name == "walnut"


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        (
            'class Almond(LSTMConfig):\n    name = "almond"',
            "class Almond(LSTMConfig):\n    name = None",
            "without a name",
        ),
        ("size_of_shell: int = 3", "size_of_shell: int", "size_of_shell"),
    ],
    ids=["name", "default"],
)
def test_a_class_that_no_command_could_list_is_refused(old: str, new: str, complaint: str, tmp_path: Path) -> None:
    assert old in PLUGIN
    path = plugin(tmp_path / "cracked.py", PLUGIN.replace(old, new))
    with pytest.raises(ValueError, match=rf"^plugin \S*cracked\.py does not import: TypeError: .*{complaint}"):
        load_plugin(str(path))
    assert "unknown task" in refusal("walnut", "task") and "unknown model" in refusal("almond", "model")


def test_a_task_without_a_name_is_refused(tmp_path: Path) -> None:
    text = PLUGIN.replace("class Walnut(Parity):\n    name", "class Walnut(Task):\n    nickname")
    text = text.replace("tasks.base import register", "tasks.base import Task, register")
    with pytest.raises(ValueError, match=r"does not import: TypeError: Walnut registers itself without a name"):
        load_plugin(str(plugin(tmp_path / "cracked.py", text)))
    assert "unknown model" in refusal("almond", "model")


def test_a_file_of_a_folder_that_does_not_import_stops_none_of_the_others(tmp_path: Path) -> None:
    plugin(tmp_path / "nuts.py")
    broken = plugin(tmp_path / "cracked.py", BROKEN["syntax"])
    (said,) = load_plugin(str(tmp_path))
    assert said.startswith(f"plugin {broken} does not import: SyntaxError") and said in problems()
    assert find_task("walnut").name == "walnut"
    (tmp_path / "nuts.py").unlink()
    with pytest.raises(ValueError, match=r"cracked\.py does not import"):
        load_plugin(str(tmp_path))


def test_a_folders_models_and_tasks_belong_to_it(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no Python file in that folder, nor in its models/ and tasks/$"):
        load_plugin(str(tmp_path))
    (tmp_path / "tasks").mkdir()
    plugin(tmp_path / "tasks" / "nuts.py")
    assert load_plugin(str(tmp_path)) == [] and find_task("walnut").name == "walnut"


def test_a_plugin_that_registers_nothing_is_said_to(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = plugin(tmp_path / "empty.py", "x = 1\n")
    said = f"plugin {path} registers nothing: put @register on a class, or call register(wrap(..))"
    assert load_plugin(str(path)) == [said] and load_plugin(str(plugin(tmp_path / "nuts.py"))) == []
    assert main(["describe", "empty", "--plugin", str(path)]) == 2
    assert capsys.readouterr().err.splitlines()[0] == f"ladder: {said}"


def test_a_plugin_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^no such plugin file: .*missing\.py$"):
        load_plugin(str(tmp_path / "missing.py"))
    with pytest.raises(ValueError, match=r"^plugin no_such_module_anywhere does not import: ModuleNotFoundError"):
        load_plugin("no_such_module_anywhere")


def test_a_name_given_twice_stops_only_that_name(tmp_path: Path) -> None:
    one, other = plugin(tmp_path / "one.py"), plugin(tmp_path / "other.py", PLUGIN.replace('"almond"', '"cashew"'))
    load_plugin(str(one))
    load_plugin(str(other))
    for message in (refusal("walnut", "task"), refusal("walnut"), *problems()):
        assert re.fullmatch(r"2 tasks are called 'walnut': \S*one\.py and \S*other\.py", message)
    assert len(problems()) == 1
    assert find_model("almond").name == "almond" and find_model("cashew").name == "cashew"
    assert find_task("parity") is Parity and preset_run("parity", "lstm").task == Parity()


def test_a_plugin_cannot_take_the_name_of_a_built_in_model(tmp_path: Path) -> None:
    path = plugin(tmp_path / "nuts.py", PLUGIN.replace('"almond"', '"lstm"'))
    with pytest.raises(ValueError, match=r"nuts\.py: there is a model 'lstm' here already, which is taken: call yours"):
        load_plugin(str(path))
    assert find_model("lstm") is LSTMConfig and "unknown" in refusal("walnut"), "nothing of it is kept"


def test_two_classes_of_one_file_may_conflict(tmp_path: Path) -> None:
    load_plugin(str(plugin(tmp_path / "nuts.py", PLUGIN + PLUGIN.replace("class Walnut", "class Hazelnut"))))
    assert "2 tasks are called 'walnut'" in refusal("walnut", "task")


def test_a_new_file_in_a_room_is_a_new_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plugin(tmp_path / "walnut.py")
    plugin(tmp_path / "_shared.py", "raise RuntimeError('not a task of its own')")
    plugin(tmp_path / "pecan.py", PLUGIN.replace('"walnut"', '"pecan"') + BROKEN["name"])
    monkeypatch.setattr(tasks, "__path__", [*tasks.__path__, str(tmp_path)])
    rooms._explored.clear()
    assert find_task("walnut").__module__ == "chomsky_ladder.tasks.walnut"
    assert problems() == ["tasks/pecan.py does not import: NameError: name 'undefined_name' is not defined"]
    assert problems()[0] in refusal("pecan", "task")
    assert "does not import" not in refusal("macadamia", "task")
    assert find_task("parity") is Parity


def test_a_task_that_cannot_be_made_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Name the error, and not that the class is there and not registered."""
    unmade = "\n    def __post_init__(self) -> None:\n        raise AttributeError('no kernel')\n"
    text = PLUGIN.replace('"walnut"', '"hickory"').replace("shell: int = 3\n", f"shell: int = 3\n{unmade}")
    plugin(tmp_path / "hickory.py", text)
    monkeypatch.setattr(tasks, "__path__", [*tasks.__path__, str(tmp_path)])
    rooms._explored.clear()
    assert "(tasks/hickory.py does not import: AttributeError: no kernel)" in refusal("hickory", "task")


def test_installed_packages_bring_plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task, model = PLUGIN.split("@register_model")[0], PLUGIN.replace("@register_task", "")
    for name, text in (("good_task", task), ("good_model", model), ("good_kernel", KERNEL), ("bad", BROKEN["lines"])):
        plugin(tmp_path / f"{name}_of_nuts.py", text)
    monkeypatch.syspath_prepend(tmp_path)
    announced = {
        "ladder.tasks": [
            EntryPoint("bad", "bad_of_nuts", "ladder.tasks"),
            EntryPoint("good", "good_task_of_nuts", "ladder.tasks"),
        ],
        "ladder.models": [EntryPoint("good", "good_model_of_nuts:Almond", "ladder.models")],
        "ladder.kernels": [EntryPoint("good", "good_kernel_of_nuts", "ladder.kernels")],
    }
    monkeypatch.setattr(rooms, "entry_points", lambda *, group: announced.get(group, []))
    rooms._explored.clear()
    assert find_task("walnut").name == "walnut" and find_model("almond").name == "almond"
    assert scans_taken() == {"pecan_scan"}
    assert problems() == ["plugin 'bad' (bad_of_nuts) does not import: RuntimeError: first line"]


def scans_taken(backend: str = "auto") -> set[str]:
    ctx = Context(backend=backend)
    MambaConfig.tiny().build(5)(torch.zeros(1, 3, dtype=torch.int64), ctx)
    return {name for name in ctx.backends if name.endswith("_scan")}


def test_a_plugin_file_brings_a_kernel(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^exec\.backend: unknown kernel 'pecan_scan'"):
        Exec(backend="pecan_scan")
    path = plugin(tmp_path / "pecan.py", KERNEL)
    load_plugin(str(path))
    assert scans_taken() == scans_taken(Exec(backend="pecan_scan").backend) == {"pecan_scan"}
    assert scans_taken("fused_scan") == {"fused_scan"} and scans_taken("reference") == set()
    demand("pecan_scan", model="mamba", device=torch.device("cpu"), stacked=True)
    with pytest.raises(ValueError, match="the backend pecan_scan serves mamba, not lstm"):
        demand("pecan_scan", model="lstm", device=torch.device("cpu"))
    load_plugin(str(plugin(path, KERNEL.replace('device="any"', 'device="cuda"'))))
    assert "pecan_scan" not in scans_taken() and not problems()


@pytest.mark.parametrize("defect", sorted(BROKEN.keys() - {"syntax"}))
def test_what_a_broken_plugin_brought_as_a_kernel_is_taken_back(defect: str, tmp_path: Path) -> None:
    before = KERNELS.copy()
    with pytest.raises(ValueError, match=r"^plugin \S*cracked\.py does not import: \w+(Error|Exit)"):
        load_plugin(str(plugin(tmp_path / "cracked.py", KERNEL + BROKEN[defect])))
    assert before == KERNELS and "pecan_scan" not in scans_taken()


def test_a_kernels_name_given_twice_stops_only_that_name(tmp_path: Path) -> None:
    before = scans_taken()
    rooms._import(lambda: rooms.import_file(plugin(tmp_path / "mine.py", KERNEL.replace("pecan_scan", "fused_scan"))))
    conflict = r"2 kernels are called 'fused_scan': \S*operations/scan/__init__\.py and \S*mine\.py; ours is taken, .*"
    assert Exec(backend="fused_scan").backend == "fused_scan"
    assert scans_taken() == before and re.fullmatch(conflict, "".join(problems()))


def test_a_new_file_among_the_kernels_is_a_new_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plugin(tmp_path / "pecan_scan.py", KERNEL)
    plugin(tmp_path / "stale.py", KERNEL.replace("pecan", "stale") + BROKEN["name"])
    monkeypatch.setattr(kernels, "__path__", [*kernels.__path__, str(tmp_path)])
    rooms._explored.clear()
    assert scans_taken(Exec(backend="pecan_scan").backend) == {"pecan_scan"}
    assert problems() == ["models/kernels/stale.py does not import: NameError: name 'undefined_name' is not defined"]
    with pytest.raises(ValueError, match=r"^exec\.backend: unknown kernel 'stale_scan'"):
        Exec(backend="stale_scan")


def test_discovery_happens_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rooms, "_discover", lambda module, shown_as: pytest.fail(f"{module} is imported again"))
    assert find_task("parity") is Parity and not problems()
