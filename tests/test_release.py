"""One version everywhere, and a changelog that names it."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]


def test_citation_and_changelog_have_the_version_of_the_package() -> None:
    assert f"\nversion: {VERSION}\n" in (ROOT / "CITATION.cff").read_text()
    newest = re.search(r"^## (\S+)", (ROOT / "docs" / "changelog.md").read_text(), re.MULTILINE)
    assert newest and newest[1] == VERSION


def test_the_release_tries_the_wheel_with_and_without_a_compiler() -> None:
    text = (ROOT / ".github" / "workflows" / "release.yml").read_text()
    assert "for compiler in cc /bin/false" in text and "id-token: write" in text and "password:" not in text
