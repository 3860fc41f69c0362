"""The files of a plugin's class, and the edits that change the digest of its code."""

from pathlib import Path

import pytest

from chomsky_ladder.harness.config.code import digest, files_of

LAB = {
    "lab/__init__.py": '"""A lab."""\nfrom lab import mine, other\n__all__ = ["mine", "other"]\n',
    "lab/mine.py": '"""A model."""\nfrom . import nn\nfrom .sizes import SIZE\nx = nn.f(SIZE)  # a comment\n',
    "lab/nn.py": 'def f(x):\n    """Return it."""\n    return x\n',
    "lab/sizes.py": 'SIZE = 8\n"""A size."""\n',
    "lab/other.py": "y = 1\n",
}


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    for name, text in LAB.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return tmp_path / "lab"


def names(lab: Path) -> list[str]:
    return sorted(files_of(lab / "mine.py", lab))


def of(lab: Path) -> str:
    return digest(files_of(lab / "mine.py", lab))


def test_a_module_of_a_package_is_its_file_and_what_that_imports_from_the_package(lab: Path) -> None:
    assert names(lab) == ["", "lab.nn", "lab.sizes"]


def test_edits_that_can_change_no_number_keep_the_digest(lab: Path) -> None:
    before = of(lab)
    (lab / "new.py").write_text("z = 2\n")
    (lab / "other.py").write_text("y = 2\n")
    (lab / "__init__.py").write_text(LAB["lab/__init__.py"] + "from lab import new\n")
    (lab / "mine.py").write_text(LAB["lab/mine.py"].replace("# a comment", "").replace("A model.", "The\n\nmodel."))
    (lab / "nn.py").write_text("def f(x):\n\n    return (\n        x\n    )\n")
    (lab / "sizes.py").write_text('SIZE = 8\n"""The size of a field."""\n')
    assert of(lab) == before


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("mine.py", "nn.f(SIZE)", "nn.f(SIZE + 1)"),
        ("nn.py", "return x", "return -x"),
        ("sizes.py", "8", "8.0"),
        ("__init__.py", "__all__", "import torch\ntorch.manual_seed(3)\n__all__"),
    ],
)
def test_an_edit_of_anything_it_runs_changes_the_digest(lab: Path, file: str, old: str, new: str) -> None:
    before = of(lab)
    (lab / file).write_text(LAB[f"lab/{file}"].replace(old, new))
    assert of(lab) != before


@pytest.mark.parametrize("line", ["import far", "from far import g", "import_module('far.near')"])
def test_what_lies_on_the_path_outside_the_installed_is_hashed(
    lab: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    elsewhere = tmp_path / "elsewhere" / "far"
    elsewhere.mkdir(parents=True)
    (elsewhere / "__init__.py").write_text("from far.near import g\n")
    (elsewhere / "near.py").write_text("def g(): return 1\n")
    monkeypatch.syspath_prepend(str(elsewhere.parent))
    (lab / "nn.py").write_text(f"{line}\n{LAB['lab/nn.py']}")
    assert "far.near" in names(lab)
    before = of(lab)
    (elsewhere / "near.py").write_text("def g(): return 2\n")
    assert of(lab) != before


def test_what_a_cluster_installs_on_the_path_is_not_hashed(
    lab: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = tmp_path / "software"
    (installed / "torch_like-2.0.dist-info").mkdir(parents=True)
    (installed / "torch_like.py").write_text("x = 1\n")
    monkeypatch.syspath_prepend(str(installed))
    (lab / "nn.py").write_text(f"import torch_like\n{LAB['lab/nn.py']}")
    assert names(lab) == ["", "lab.nn", "lab.sizes"]


def test_a_name_that_its_package_gives_leads_through_the_package(lab: Path) -> None:
    (lab / "mine.py").write_text("from lab import SIZE\n")
    (lab / "__init__.py").write_text("from .sizes import SIZE\n")
    assert names(lab) == ["", "lab", "lab.sizes"]


def test_a_file_alone_does_not_hash_another_of_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in ("here", "on_the_path"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "alone_in_its_folder.py").write_text("x = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path / "on_the_path"))
    assert list(files_of(tmp_path / "here" / "alone_in_its_folder.py")) == [""]
