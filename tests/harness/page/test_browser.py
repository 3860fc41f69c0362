"""The page in a real Chromium, driven over WebDriver's HTTP protocol with the standard library alone."""

import base64
import json
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from chomsky_ladder.harness.page.html import page
from support.records_by_hand import frame, record

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--force-prefers-reduced-motion"),
)
pytestmark = pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="needs Chromium and its driver")

IMAGE, SCRIPT, QUOTES = "<img src=x onerror=alert(1)>", "</script><script>alert(2)</script>", "\"'&lt;b{{data}}"
HOSTILE = (IMAGE, SCRIPT, QUOTES, "<!--<script>", "javascript:alert(3)", "long_" * 30, "\u202egnp")
LEVELS = {IMAGE: "regular", "majority": "counter", "bucket_sort": "context_sensitive", "set": "context_sensitive"}
EXTENT = "return [document.documentElement.scrollWidth, document.documentElement.clientWidth]"


class Browser:
    """A session of chromedriver: what the tests ask of it and no more."""

    def __init__(self, port: int, downloads: Path, profile: Path) -> None:
        self._open = urllib.request.build_opener(urllib.request.ProxyHandler({})).open
        self._root = f"http://127.0.0.1:{port}"
        options = {
            "binary": CHROMIUM,
            "args": [*FLAGS, f"--user-data-dir={profile}"],
            "prefs": {"download.default_directory": str(downloads)},
        }
        asked = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
        answer = self._call("POST", "/session", {"capabilities": {"alwaysMatch": asked}})
        self._root += f"/session/{answer['sessionId']}"

    def _call(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        content = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            self._root + path, content, {"Content-Type": "application/json"}, method=method
        )
        try:
            with self._open(request, timeout=60) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            with error:
                raise AssertionError(error.read().decode()) from None

    def devtools(self, command: str, **parameters: Any) -> Any:
        return self._call("POST", "/goog/cdp/execute", {"cmd": command, "params": parameters})

    def sized(self, width: int, height: int = 900) -> None:
        """A viewport of exactly so many pixels, which a window of Chromium need not have."""
        self.devtools(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )

    def go(self, path: Path) -> None:
        self._call("POST", "/url", {"url": path.as_uri()})

    def js(self, script: str, *arguments: Any) -> Any:
        return self._call("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def click(self, selector: str, place: int = 0) -> None:
        """As a person does: it must be in sight and not covered."""
        self._call("POST", f"/element/{self._element(selector, place)}/click", {})

    def press(self, keys: str, selector: str) -> None:
        self._call("POST", f"/element/{self._element(selector, 0)}/value", {"text": keys})

    def _element(self, selector: str, place: int) -> str:
        found = self._call("POST", "/elements", {"using": "css selector", "value": selector})
        return next(iter(found[place].values()))

    def complaints(self) -> list[str]:
        """What the console has said since it was last asked."""
        return [line["message"] for line in self._call("POST", "/se/log", {"type": "browser"})]

    def screenshot(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self._call("GET", "/screenshot")))

    def quit(self) -> None:
        self._call("DELETE", "")


@contextmanager
def opened(folder: Path) -> Iterator[Browser]:
    assert DRIVER
    log = folder / "driver.log"
    with log.open("w") as out:
        driver = subprocess.Popen([DRIVER, "--port=0"], stdout=out, stderr=out)
        try:
            port = _port(log)
            browser = Browser(port, folder, folder / "profile")
            try:
                yield browser
            finally:
                browser.quit()
        finally:
            driver.terminate()
            driver.wait()


def _port(log: Path) -> int:
    for _ in range(200):
        words = log.read_text().split("started successfully on port ")
        if len(words) > 1 and "." in words[1]:
            return int(words[1].split(".")[0])
        time.sleep(0.05)
    raise AssertionError(log.read_text())


def runs() -> pd.DataFrame:
    """Models and tasks with hostile names, a run that failed, cells nobody measured, and a table of many columns."""
    bins = '{"40..64":0.9,"65..96":0.7,"97..128":0.55}'
    rows = [
        record(
            task=task,
            level=level,
            model=model,
            seed=seed,
            test_scaled=score + seed / 100,
            test_bins=bins,
            content_free_bins=bins.replace("0.9", "0.6"),
            extrapolation='{"512":0.6}',
            commit="c0ffee",
            device=SCRIPT,
            torch="2.13.0",
        )
        for task, level in LEVELS.items()
        for model, score in (("a_lstm", 0.5), ("b_mamba", 0.1), (SCRIPT, 0.9))
        for seed in (0, 1)
        if (task, model) != ("majority", SCRIPT)
    ]
    rows.append(record(task="bucket_sort", level="context_sensitive", model=QUOTES, status="failed", error=IMAGE))
    rows += [record(protocol="quick (train.steps=9)", model=name, lr=1e-2) for name in HOSTILE]
    rows += [record(protocol="slice", task=f"quite_a_long_task_{i}", model=f"model_{i}") for i in range(20)]
    return frame(*rows)


def curves(records: pd.DataFrame) -> pd.DataFrame:
    rows = [(run, step, 2 / step, step / 200) for run in records["run_id"] for step in (20, 40, 100)]
    return pd.DataFrame(rows, columns=["run_id", "step", "loss", "validation"])


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with opened(tmp_path_factory.mktemp("browser")) as found:
        yield found


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "page.html"
    records = runs()
    path.write_text(page(records, curves=curves(records)))
    return path


@pytest.fixture
def opened_page(browser: Browser, file: Path) -> Iterator[Browser]:
    """The page afresh at 1440 pixels; afterwards, that it said nothing to the console."""
    browser.sized(1440)
    browser.go(file)
    yield browser
    assert browser.complaints() == []
    assert browser.js("return document.images.length + document.scripts.length") == 2  # data and ours


def models(browser: Browser, table: int = 2) -> list[str]:
    """The names of the rows in sight, from the top."""
    script = "return [...document.querySelectorAll('table.grid')[arguments[0]].tBodies[0].rows]"
    return browser.js(f"{script}.filter((row) => row.offsetParent).map((row) => row.cells[0].textContent)", table)


def heads(browser: Browser, table: int = 2) -> list[str]:
    script = "return [...document.querySelectorAll('table.grid')[arguments[0]].tHead.rows[arguments[1]].cells]"
    script += ".filter((cell) => cell.offsetParent).map((cell) => `${cell.textContent} ${cell.colSpan}`)"
    return [head for row in (0, 1) for head in browser.js(script, table, row)]


def test_sorting(opened_page: Browser) -> None:
    column = "#protocol-2 th[data-column='0'] button"
    sorts = "return [...document.querySelectorAll('#protocol-2 [aria-sort]')].map((head) => head.ariaSort)"
    by_name = models(opened_page)
    assert by_name == sorted([QUOTES, SCRIPT, "a_lstm", "b_mamba"])
    opened_page.click(column)
    assert models(opened_page) == [SCRIPT, "a_lstm", "b_mamba", QUOTES]
    assert opened_page.js(sorts) == ["none", "descending", "none", "none", "none"]
    opened_page.press("\ue007", column)  # Enter
    assert models(opened_page) == ["b_mamba", "a_lstm", SCRIPT, QUOTES]  # what was not measured stays last
    assert opened_page.js(sorts) == ["none", "ascending", "none", "none", "none"]
    opened_page.click("#protocol-2 th.corner button")
    assert models(opened_page) == by_name and opened_page.js(sorts)[0] == "ascending"
    opened_page.click("#protocol-2 th.corner button")
    assert models(opened_page) == by_name[::-1]
    floors = "return document.querySelectorAll('#protocol-2 tbody')[1].textContent"
    assert "content free" in opened_page.js(floors)


def test_filtering(opened_page: Browser) -> None:
    bands, tasks = ["Model 1", "regular 1", "counter 1", "context-sensitive 2"], [f"{task} 1" for task in LEVELS]
    whole = bands + tasks
    assert heads(opened_page) == whole
    opened_page.press("LSTM mamba", "#models")
    assert models(opened_page) == ["a_lstm", "b_mamba"] and models(opened_page, table=0) == []
    opened_page.press("sort maj", "#tasks")
    assert heads(opened_page) == ["Model 1", "counter 1", "context-sensitive 1", *tasks[1:3]]
    opened_page.click("#filters input[value='counter']")
    assert heads(opened_page) == ["Model 1", "context-sensitive 1", tasks[2]]
    shown = "return document.getElementById('shown').textContent"
    assert opened_page.js(shown) == "2 of 31 rows, 1 of 25 columns"
    said = "return [...document.querySelectorAll('.nothing')].map((one) => one.offsetParent !== null)"
    assert opened_page.js(said) == [True, True, False]
    opened_page.press("\ue003" * 10, "#models")  # Backspace
    opened_page.press("\ue003" * 8, "#tasks")
    opened_page.click("#filters input[value='counter']")
    assert heads(opened_page) == whole and len(models(opened_page)) == 4 and opened_page.js(shown) == ""


def test_a_cell_opens_and_closes(opened_page: Browser) -> None:
    cells = "#protocol-2 button.cell"
    is_open = "return document.getElementById('panel').open"
    text = "return document.getElementById('panel').innerText"
    opened_page.press("\ue007", cells)  # Enter on the first
    said = opened_page.js(text)
    assert opened_page.js(is_open) and QUOTES in said
    assert f"failed: {IMAGE}" in said and "No seed finished" in said
    opened_page.press("\ue00c", "#close")  # Escape
    assert not opened_page.js(is_open)
    assert opened_page.js("return document.activeElement.matches(arguments[0])", cells)  # where one was before
    place = "return [...document.querySelectorAll(arguments[0])].findIndex((one) => one.textContent.startsWith('0.51'))"
    opened_page.click(cells, opened_page.js(place, cells))
    said = opened_page.js(text)
    for part in (
        f"a_lstm on {IMAGE}",
        "0.51 [0.50, 0.51]",
        "scaled test accuracy: median and range over 2 seeds; solved by 0 of 2",
        "0.001 (chosen)",
        "c0ffee",
        SCRIPT,
    ):
        assert part in said
    quoted = IMAGE.replace("<", "'<", 1) + "'"
    assert f"ladder run {quoted} a_lstm --protocol xlstm --train.lr 0.001 --seed 1" in said.replace("\n", "")
    charts = "return [...document.querySelectorAll('#panel svg')].map((one) => one.querySelectorAll('circle').length)"
    assert opened_page.js(charts) == [2 * 4 + 4, 2, 2]  # each seed's bins and their means; the ends of both curves
    opened_page.click("#close")
    assert not opened_page.js(is_open)


def test_bins_are_where_their_numbers_say(opened_page: Browser) -> None:
    """The second seed's four points, at accuracies .9 .7 .55 .6, scaled .8 .4 .1 .2 between the lines of 0 and 1."""
    cells = "[...document.querySelectorAll('#protocol-2 button.cell')]"
    opened_page.js(f"{cells}.find((one) => one.textContent.startsWith('0.51')).click()")
    heights = "return [...document.querySelectorAll('#panel figure')[0].querySelectorAll('circle.mean-dot')]"
    found = opened_page.js(f"{heights}.map((dot) => Number(dot.getAttribute('cy')))")
    lines = "return [...document.querySelectorAll('#panel figure')[0].querySelectorAll('text')]"
    ends = dict(opened_page.js(f"{lines}.map((text) => [text.textContent, Number(text.getAttribute('y')) - 4])"))
    shares = [(ends["0"] - height) / (ends["0"] - ends["1"]) for height in found]
    assert shares == pytest.approx([0.8, 0.4, 0.1, 0.2], abs=1e-6)
    table = opened_page.js(
        "return [...document.querySelectorAll('#panel details tbody tr')].map((row) => row.textContent)"
    )
    assert table[0] == "40..640.8000.800  0.8000.200" and len(table) == 4


@pytest.mark.parametrize("width", [390, 1440])
def test_nothing_is_wider_than_the_screen(opened_page: Browser, width: int) -> None:
    opened_page.sized(width)
    needed, there = opened_page.js(EXTENT)
    assert needed <= there <= width
    count = opened_page.js("return document.querySelectorAll('button.cell').length")
    wide = "const panel = document.getElementById('panel'); panel.close(); "
    wide += (
        "document.querySelectorAll('button.cell')[arguments[0]].click(); return [panel.scrollWidth, panel.clientWidth]"
    )
    for cell in range(count):
        needed, there = opened_page.js(wide, cell)
        assert needed <= there <= width, cell
    needed, there = opened_page.js(EXTENT)
    assert needed <= there


def test_the_download_is_the_records(opened_page: Browser, file: Path) -> None:
    opened_page.js(
        "const make = URL.createObjectURL; URL.createObjectURL = (blob) => { window.kept = blob; return make(blob); };"
    )
    opened_page.click("#download")
    downloaded = opened_page.js("return window.kept.text()")
    assert downloaded == runs().sort_values("run_id").to_csv(index=False, lineterminator="\n")


def test_the_theme_turns(opened_page: Browser) -> None:
    ground = "return getComputedStyle(document.body).backgroundColor"
    colours = []
    for scheme in ("light", "dark"):
        opened_page.devtools("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        colours.append(opened_page.js(ground))
    light, dark = colours
    assert light == "rgb(252, 252, 250)" and dark == "rgb(20, 22, 26)"
    for expected in (light, dark, dark):  # light, dark, and the system's again
        opened_page.click("#theme")
        assert opened_page.js(ground) == expected


def test_without_a_script_the_tables_are_there(browser: Browser, file: Path) -> None:
    browser.devtools("Emulation.setScriptExecutionDisabled", value=True)
    try:
        browser.sized(1440)
        browser.go(file)
    finally:
        browser.devtools("Emulation.setScriptExecutionDisabled", value=False)
    assert models(browser) == sorted([QUOTES, SCRIPT, "a_lstm", "b_mamba"])
    assert browser.js("return document.getElementById('filters').hidden")
