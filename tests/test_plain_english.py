"""The checker of docstrings and documents finds what it is for, and nothing in this file's clear sentences."""

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
_spec = importlib.util.spec_from_file_location("plain_english", ROOT / "scripts" / "plain_english.py")
plain_english = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(plain_english)

CODE = '''"""Of the module: unclear."""


class Clear:
    """Count things."""

    def unclear(self) -> None:
        """Whether it is,
        over two lines."""

    def clear(self) -> None:
        """Ofcourse is no Of."""
'''
LONG = "One " + "more " * 31 + "word."
TEXT = f"# {LONG}\n\nShort. {LONG}\n\n| {LONG} |\n\n```\n{LONG}\n```\n\n- [short]({LONG.replace(' ', '-')})\n"


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(plain_english, "ROOT", tmp_path)
    (tmp_path / "code.py").write_text(CODE)
    (tmp_path / "text.md").write_text(TEXT)
    return tmp_path


def test_unclear_docstrings_and_long_sentences_are_found(checkout: Path) -> None:
    found = [*plain_english.findings(Path("code.py")), *plain_english.findings(Path("text.md"))]
    assert [(str(each.file), each.first, each.last) for each in found] == [
        ("code.py", 1, 1),
        ("code.py", 8, 9),
        ("text.md", 3, 3),
    ]
    assert str(found[1]) == "code.py:8: a docstring begins with 'Whether': begin with a verb, or name the result"
    assert "a sentence of 33 words, of at most 30: One more more more more more" in str(found[2])


def test_only_changed_lines_are_held_to_it(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    diff = "+++ b/code.py\n@@ -7,2 +9,1 @@\n+++ b/gone.py\n@@ -1 +1 @@\n"
    monkeypatch.setattr(plain_english, "_git", lambda *words: diff if words[0] == "diff" else "code.py\ntext.md\n")
    assert plain_english.main(["--changed"]) == 1
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["code.py:8:"]
    assert plain_english.main([]) == 1 and len(capsys.readouterr().out.splitlines()) == 3
    assert plain_english.main(["--summary"]) == 0
    assert capsys.readouterr().out == "plain English: 2 unclear docstrings and 1 long sentences are left\n"
