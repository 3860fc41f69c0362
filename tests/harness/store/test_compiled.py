"""Compiled kernels that were cut, emptied or flipped are removed before anybody loads them."""

import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from chomsky_ladder.harness.store.compiled import remove_damaged_kernels
from chomsky_ladder.models.kernels import native
from chomsky_ladder.models.kernels.native_library import cache_folder

Capture = pytest.CaptureFixture[str]
needs_compiler = pytest.mark.skipif(bool(native.missing()), reason=f"no C kernels here: {native.missing()}")


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One that this machine has compiled, in a cache of its own."""
    made = cache_folder()
    found = Path(native._library(torch.float32)._name)
    if made is None or not found.exists():
        pytest.skip("nothing is kept here")
    (tmp_path / "chomsky-ladder").mkdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return Path(shutil.copy(found, tmp_path / "chomsky-ladder"))


@needs_compiler
def test_what_is_whole_stays(library: Path, capsys: Capture) -> None:
    for _ in range(2):
        assert remove_damaged_kernels() == [] and capsys.readouterr().err == ""
    check = ["sha256sum", "--check", f"{library.name}.sha256"]
    assert subprocess.run(check, cwd=library.parent, capture_output=True, timeout=60).returncode == 0


@needs_compiler
@pytest.mark.parametrize("known", [True, False])
def test_what_was_cut_anywhere_is_removed_and_said(known: bool, library: Path, capsys: Capture) -> None:
    whole, draw = library.read_bytes(), random.Random(7)
    for size in (0, 1, 63, 64, len(whole) - 1, *(draw.randrange(len(whole)) for _ in range(40))):
        library.write_bytes(whole)
        if known:
            assert remove_damaged_kernels() == []
        library.write_bytes(whole[:size])
        assert remove_damaged_kernels() == [library] and not list(library.parent.iterdir())
        assert capsys.readouterr().err.startswith(f"ladder: {library} was damaged")


@needs_compiler
def test_a_flipped_bit_or_a_damaged_digest_is_removed(library: Path) -> None:
    whole, draw = library.read_bytes(), random.Random(7)
    for _ in range(40):
        library.write_bytes(whole)
        assert remove_damaged_kernels() == []
        place = draw.randrange(len(whole))
        library.write_bytes(whole[:place] + bytes([whole[place] ^ (1 << draw.randrange(8))]) + whole[place + 1 :])
        assert remove_damaged_kernels() == [library]
    library.write_bytes(whole)
    library.with_name(f"{library.name}.sha256").write_bytes(b"\xff\x00")
    assert remove_damaged_kernels() == [library]


def test_no_cache_is_no_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "nowhere"))
    assert remove_damaged_kernels() == []
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert remove_damaged_kernels() == []


@needs_compiler
@pytest.mark.full
def test_every_command_outlives_a_cut_kernel(library: Path) -> None:
    """It was a bus error of all of them, for ever."""
    os.truncate(library, 34_000)
    command = [sys.executable, "-m", "chomsky_ladder", "doctor"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and f"ladder: {library} was damaged" in done.stderr
    assert native.identity() and library.stat().st_size > 34_000
