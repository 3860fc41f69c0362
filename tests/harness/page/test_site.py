"""`ladder page` as a file, as a folder for a host, and on a port; its mistakes as lines."""

import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from chomsky_ladder.harness.cli.page import page as page_command
from chomsky_ladder.harness.page.card import card
from support.pages import climb
from support.records_by_hand import frame, record

ROOT = Path(__file__).parents[3]


@pytest.fixture
def results(tmp_path: Path) -> Path:
    folder = tmp_path / "of mine"
    folder.mkdir()
    frame(record(), record(model="mamba")).to_csv(folder / "records.csv", index=False)
    return folder


@pytest.mark.full
def test_a_folder_holds_the_page_and_its_data(results: Path, tmp_path: Path) -> None:
    assert page_command(["--results", str(results), "--out", str(tmp_path / "site")]) == 0
    site = tmp_path / "site"
    assert sorted(path.name for path in site.iterdir()) == ["index.html", "records.csv"]
    assert (site / "records.csv").read_bytes() == (results / "records.csv").read_bytes()
    assert page_command(["--results", str(results), "--out", str(tmp_path / "one.html")]) == 0
    assert (tmp_path / "one.html").read_bytes() == (site / "index.html").read_bytes()


@pytest.mark.full
def test_a_link_to_it_is_shown_with_a_card(results: Path, tmp_path: Path) -> None:
    words = ["--results", str(results), "--out", str(tmp_path / "site"), "--url", "https://ladder.test/a&b"]
    assert page_command(words) == 0
    page = (tmp_path / "site" / "index.html").read_text()
    assert '<link rel="canonical" href="https://ladder.test/a&amp;b/">' in page
    assert '<meta property="og:image" content="https://ladder.test/a&amp;b/card.png">' in page
    assert '<meta name="twitter:card" content="summary_large_image">' in page
    assert size_of((tmp_path / "site" / "card.png").read_bytes()) == (1200, 630)


def test_the_card_shows_a_climb_too() -> None:
    assert size_of(card(frame(*climb()))) == (1200, 630)


def size_of(png: bytes) -> tuple[int, int]:
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    return int.from_bytes(png[16:20]), int.from_bytes(png[20:24])


def test_it_is_served_on_this_machine_until_it_is_stopped(results: Path, tmp_path: Path) -> None:
    words = ["page", "--results", str(results), "--serve", "--port", "0"]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-m", "chomsky_ladder", *words]

    def heeding() -> None:  # who runs the tests in the background has it ignored
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True, preexec_fn=heeding) as server:
        try:
            assert server.stdout is not None
            address = server.stdout.readline().split()[0]
            assert address.startswith("http://127.0.0.1:")
            ask = urllib.request.build_opener(urllib.request.ProxyHandler({})).open
            with ask(address, timeout=30) as answer:
                served = answer.read().decode()
            with ask(f"{address}records.csv", timeout=30) as answer:
                assert answer.read() == (results / "records.csv").read_bytes()
            server.send_signal(signal.SIGINT)
            assert server.wait(timeout=30) == 0
        finally:
            server.kill()
    assert "<title>Chomsky Ladder" in served
    assert not [path for path in tmp_path.iterdir() if path != results]  # nothing is left behind


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--results", "{}/none"], "no such folder of results"),
        (["--results", "{}"], "no finished runs"),
        (["--results", "{}", "--out", "{}/no/page.html"], "name an .html file in a folder that exists"),
        (["--results", "{}", "--out", "{}/taken/x"], "taken is a file and no folder"),
        (["--results", "{}", "--out", "{}/taken"], "is a file: name a folder, or a file that ends in .html"),
        (["--results", "{}", "--out", "{}/site", "--url", "mine.test"], "name the https://.. address"),
        (["--results", "{}", "--out", "{}/page.html", "--url", "https://mine.test"], "name the https://.. address"),
        (["--results", "{}", "--serve", "--port", "70000"], "--port must lie in 0..65535, not 70000"),
    ],
)
def test_a_mistake_is_a_line(words: list[str], said: str, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("mine")
    with pytest.raises(ValueError, match=said):
        page_command([word.format(tmp_path) for word in words])
