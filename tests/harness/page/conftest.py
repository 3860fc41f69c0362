"""A page of hand-made records in a real Chromium, opened once for all tests of the page."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from chomsky_ladder.harness.cli.listing import of_these_sources
from chomsky_ladder.harness.page.html import page
from support.browser import CHROMIUM, DRIVER, Browser, opened
from support.page_studies import throughput, world
from support.pages import climb, curves, runs
from support.records_by_hand import frame


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    if not (CHROMIUM and DRIVER):
        pytest.skip("needs Chromium and its driver")
    with opened(tmp_path_factory.mktemp("browser")) as found:
        yield found


@pytest.fixture(scope="session")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("page")
    records = runs()
    for game in ("othello", "chess"):
        world(folder, "cpu", game=game)
    beside = {"throughput": throughput(folder / "throughput"), "worlds": folder}
    text = page(records, curves=curves(records), listing=of_these_sources(), **beside)
    (folder / "page.html").write_text(text)
    return folder / "page.html"


@pytest.fixture(scope="session")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page with findings: eight models, of which the first holds every rung."""
    models = ("lstm", "mamba", "mamba (eigenvalues=signed)", *(f"mine_{i}" for i in range(5)))
    path = tmp_path_factory.mktemp("many") / "page.html"
    path.write_text(page(frame(*climb(models=models, whole=True)), listing=of_these_sources()))
    return path


@pytest.fixture
def at(browser: Browser, file: Path) -> Iterator[Callable[[str], Browser]]:
    """Opens the page at an address, 1440 pixels wide; afterwards, that it said nothing to the console."""

    def opened_at(address: str) -> Browser:
        browser.sized(1440)
        browser.go(file, address)
        return browser

    yield opened_at
    assert browser.complaints() == []
    assert browser.js("return document.images.length + document.scripts.length") == 2  # data and ours
