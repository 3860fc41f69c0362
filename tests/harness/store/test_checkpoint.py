"""A checkpoint is read as it was written, or refused: cut, flipped, foreign, hostile or never finished."""

import hashlib
import io
import os
import pickle
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from chomsky_ladder.harness.store import checkpoint
from chomsky_ladder.harness.store.checkpoint import (
    DamagedCheckpoint,
    newest,
    path_of,
    prune,
    read,
    write,
    write_atomically,
)

CONTENT = {"model": {"weight": torch.arange(6.0).reshape(2, 3)}, "counters": {"step": 3, "loss_sum": 0.5}}


class Touching:
    """Creates a file when it is unpickled."""

    def __init__(self, victim: Path) -> None:
        self.victim = victim

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.victim,)


def sealed(payload: bytes) -> bytes:
    """A payload under a right digest."""
    return b"ladder-checkpoint 1 " + hashlib.sha256(payload).hexdigest().encode() + b"\n" + payload


def archive(content: Any, *, zipped: bool = True) -> bytes:
    buffer = io.BytesIO()
    torch.save(content, buffer, _use_new_zipfile_serialization=zipped)
    return buffer.getvalue()


def same(one: Any, other: Any) -> bool:
    """Equal in every type, dtype and bit."""
    if type(one) is not type(other):
        return False
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return repr(one) == repr(other)  # nan is itself, 1 is not 1.0


def refused(path: Path, damaged: bytes) -> str:
    path.write_bytes(damaged)
    with pytest.raises(DamagedCheckpoint) as caught:
        read(path)
    assert path.name in str(caught.value)
    return str(caught.value)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two checkpoints of a run, of steps 3 and 7."""
    for step in (3, 7):
        write(path_of(tmp_path, step), {**CONTENT, "step": step})
    return tmp_path


def test_a_checkpoint_is_read_as_it_was_written(tmp_path: Path) -> None:
    model = torch.nn.Linear(2, 3)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    content = {
        **CONTENT,
        "model": dict(model.state_dict()),
        "optimizer": optimizer.state_dict(),
        "kinds": [
            torch.tensor([1 + 2**-7], dtype=torch.bfloat16),
            torch.tensor([0.1], dtype=torch.float64),
            torch.tensor([1 + 2j]),
            torch.tensor([True, False]),
            torch.tensor(2**62),
            torch.zeros(0, 3),
        ],
        "values": (1, 1.0, True, None, "text", float("nan"), float("-inf"), 2**60, ["backend"], {}),
    }
    write(tmp_path / "x.ckpt", content)
    assert same(read(tmp_path / "x.ckpt"), content)
    again = torch.nn.Linear(2, 3)
    again.load_state_dict(read(tmp_path / "x.ckpt", device=torch.device("cpu"))["model"])
    assert same(dict(again.state_dict()), content["model"])


def test_a_checkpoint_is_read_to_the_device_asked_for(tmp_path: Path) -> None:
    write(tmp_path / "x.ckpt", CONTENT)
    assert read(tmp_path / "x.ckpt", device="meta")["model"]["weight"].device.type == "meta"


def test_a_later_write_replaces_an_earlier_one(tmp_path: Path) -> None:
    for step in (1, 2):
        write(tmp_path / "x.ckpt", {"step": step})
    assert read(tmp_path / "x.ckpt") == {"step": 2}
    assert [path.name for path in tmp_path.iterdir()] == ["x.ckpt"]


def test_a_checkpoint_cut_anywhere_is_refused(folder: Path) -> None:
    whole = path_of(folder, 7).read_bytes()
    for size in range(0, len(whole), 17):
        refused(path_of(folder, 7), whole[:size])
    refused(path_of(folder, 7), whole[:-1])
    refused(path_of(folder, 7), whole + b"\0")


@pytest.mark.parametrize("bit", [0x01, 0x20, 0x80])
def test_a_checkpoint_with_a_flipped_bit_anywhere_is_refused(bit: int, folder: Path) -> None:
    """0x20 turns a digit of the digest from one case into the other."""
    whole = path_of(folder, 7).read_bytes()
    header = whole.index(b"\n") + 1
    for place in [*range(header), *range(header, len(whole), 31), len(whole) - 1]:
        refused(path_of(folder, 7), whole[:place] + bytes([whole[place] ^ bit]) + whole[place + 1 :])


@pytest.mark.parametrize(
    "foreign",
    [
        b"",
        b"\n",
        b"hello",
        archive(CONTENT),
        pickle.dumps(CONTENT),
        b"ladder-checkpoint 1 ",
        b"ladder-checkpoint 1 \n" + archive(CONTENT),
        sealed(archive(CONTENT)).removeprefix(b"ladder-checkpoint 1 "),
        sealed(archive(CONTENT)).replace(b"\n", b" \n", 1),
        sealed(b"").removesuffix(b"\n"),
    ],
    ids=["empty", "newline", "text", "torch", "pickle", "header", "no-digest", "no-magic", "space", "no-payload"],
)
def test_a_foreign_file_is_refused(foreign: bytes, tmp_path: Path) -> None:
    refused(tmp_path / "x.ckpt", foreign)


def test_a_checkpoint_of_another_format_is_refused(folder: Path) -> None:
    whole = path_of(folder, 7).read_bytes()
    assert whole.startswith(b"ladder-checkpoint 1 ")
    refused(path_of(folder, 7), whole.replace(b"checkpoint 1 ", b"checkpoint 2 ", 1))


@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "legacy"])
def test_a_checkpoint_never_runs_code(zipped: bool, folder: Path) -> None:
    victim = folder / "victim"
    hostile = archive({"model": Touching(victim)}, zipped=zipped)
    torch.load(io.BytesIO(hostile), weights_only=False)
    assert victim.exists()  # the attack works on an incautious reader
    victim.unlink()
    assert "something other than weights" in refused(path_of(folder, 7), sealed(hostile))
    with pytest.warns(UserWarning, match="step_00000007.ckpt holds something other than weights"):
        assert newest(folder)["step"] == 3
    refused(path_of(folder, 7), sealed(pickle.dumps(Touching(victim), protocol=2)))
    assert not victim.exists()


@pytest.mark.parametrize("payload", [b"", b"hello", archive(CONTENT)[:200]], ids=["empty", "text", "half"])
def test_a_payload_that_does_not_parse_is_refused_under_a_right_digest(payload: bytes, folder: Path) -> None:
    assert "something other than weights" in refused(path_of(folder, 7), sealed(payload))
    with pytest.warns(UserWarning, match="step_00000007.ckpt holds something other than weights"):
        assert newest(folder)["step"] == 3


def test_a_checkpoint_that_vanishes_while_one_looks_is_passed_by(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path_of(folder, 9).symlink_to(folder / "replaced since")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert newest(folder)["step"] == 7


def test_the_newest_is_taken(folder: Path) -> None:
    write(path_of(folder, 10_000), {**CONTENT, "step": 10_000})
    assert newest(folder)["step"] == 10_000
    assert newest(folder, device="meta")["model"]["weight"].device.type == "meta"


def test_a_folder_without_checkpoints_has_no_newest(tmp_path: Path) -> None:
    (tmp_path / "result.json").write_text("{}")
    assert newest(tmp_path) is None


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "cut": lambda whole: whole[:-100],
    "flipped": lambda whole: whole[:-50] + bytes([whole[-50] ^ 1]) + whole[-49:],
    "empty": lambda whole: b"",
    "foreign": lambda whole: b"hello\n" + whole,
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_newest_is_named_and_passed_by(damage: str, folder: Path) -> None:
    path = path_of(folder, 7)
    path.write_bytes(DAMAGES[damage](path.read_bytes()))
    with pytest.warns(UserWarning, match=rf"^{folder.name}: step_00000007\.ckpt .*older checkpoint is used$") as caught:
        assert same(newest(folder), {**CONTENT, "step": 3})
    assert len(caught) == 1


def test_an_intact_newest_is_taken_without_a_look_at_the_older(folder: Path) -> None:
    path_of(folder, 3).write_bytes(b"")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert newest(folder)["step"] == 7


def test_all_damaged_is_none(folder: Path) -> None:
    for step in (3, 7):
        path_of(folder, step).write_bytes(b"")
    with pytest.warns(UserWarning, match="is not a checkpoint") as caught:
        assert newest(folder) is None
    assert [str(warning.message).split()[1] for warning in caught] == ["step_00000007.ckpt", "step_00000003.ckpt"]


@pytest.mark.parametrize("place", ["save", "fsync", "rename"])
def test_an_interrupted_write_leaves_the_old_file(place: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*arguments: Any, **settings: Any) -> None:
        raise KeyboardInterrupt

    before = path_of(folder, 7).read_bytes()
    owner = {"save": torch, "fsync": os, "rename": Path}[place]
    with monkeypatch.context() as patch:
        patch.setattr(owner, place, interrupt)
        for step in (7, 9):
            with pytest.raises(KeyboardInterrupt):
                write(path_of(folder, step), {**CONTENT, "step": -1})
    assert path_of(folder, 7).read_bytes() == before
    assert not path_of(folder, 9).exists()
    assert newest(folder)["step"] == 7
    prune(folder)
    assert sorted(path.name for path in folder.iterdir()) == ["step_00000003.ckpt", "step_00000007.ckpt"]
    write(path_of(folder, 9), {**CONTENT, "step": 9})
    assert newest(folder)["step"] == 9


def test_a_file_is_on_disk_before_it_has_its_name_and_its_name_is_before_the_return(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []
    fsync, rename = os.fsync, Path.rename

    def syncing(file: int) -> None:
        events.append(f"sync {Path(f'/proc/self/fd/{file}').readlink()} of {os.fstat(file).st_size}")
        fsync(file)

    def renaming(self: Path, target: Path) -> Path:
        events.append(f"rename {self} to {target}")
        return rename(self, target)

    monkeypatch.setattr(os, "fsync", syncing)
    monkeypatch.setattr(Path, "rename", renaming)
    path = tmp_path / "x.json"
    write_atomically(path, b"12345")
    assert path.read_bytes() == b"12345"
    part = events[0].removeprefix("sync ").removesuffix(" of 5")
    assert part.startswith(f"{path}.") and part.endswith(".part")
    assert events[1] == f"rename {part} to {path}"
    assert len(events) == 3 and events[2].startswith(f"sync {tmp_path} ")


def test_prune_keeps_the_newest(tmp_path: Path) -> None:
    steps = (1, 9, 10, 99, 100)
    for step in steps:
        write(path_of(tmp_path, step), {"step": step})
    (tmp_path / "result.json").write_text("{}")
    (tmp_path / "step_00000101.ckpt.part").write_bytes(b"torn")
    prune(tmp_path)
    kept = {path_of(tmp_path, step) for step in steps[-checkpoint.KEEP :]} | {tmp_path / "result.json"}
    assert checkpoint.KEEP == 2 and set(tmp_path.iterdir()) == kept
    prune(tmp_path, keep=1)
    assert set(tmp_path.iterdir()) == {path_of(tmp_path, 100), tmp_path / "result.json"}
    prune(tmp_path, keep=1)
    assert newest(tmp_path) == {"step": 100}


def test_checkpoints_sort_by_their_step(tmp_path: Path) -> None:
    paths = [path_of(tmp_path, step) for step in (0, 9, 10, 999_999, 1_000_000, 99_999_999)]
    assert paths == sorted(paths)
    assert len(set(paths)) == len(paths)
