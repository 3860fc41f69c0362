"""The frame of the page in a browser: addresses, the panel, what is taken away, widths, themes, no script."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from support.browser import EXTENT, Browser
from support.pages import IMAGE, LEVELS, QUOTES, SCRIPT

At = Callable[[str], Browser]
VIEWS = ("ladder", "corner", "matrix", "lengths", "cost", "theory", "tasks", "models", "worlds", "add", "about")
TITLE = "return document.getElementById('title').textContent"
HASH = "return decodeURIComponent(location.hash)"
OPEN = "return document.getElementById('panel').open"
KEPT = "const make = URL.createObjectURL; URL.createObjectURL = (blob) => { window.kept = blob; return make(blob); };"


@pytest.mark.parametrize("view", VIEWS)
def test_every_view_is_a_tab_with_a_title_and_something_in_it(at: At, view: str) -> None:
    browser = at("")
    browser.click(f"#tabs a[href='#{view}']")
    assert browser.js("return location.hash") == f"#{view}"
    assert browser.js("return document.querySelector('#tabs [aria-current]').textContent")
    assert browser.js(f"return document.querySelector('#tabs a[href=\"#{view}\"]').ariaCurrent") == "page"
    assert browser.js(TITLE) in browser.js("return document.title")
    assert len(browser.js("return document.getElementById('body').innerText")) > 100
    unnamed = "return [...document.querySelectorAll('button, a, input, select')].filter((one) => !"
    unnamed += "(one.textContent.trim() || one.ariaLabel || one.labels?.length)).map((one) => one.outerHTML)"
    assert browser.js(unnamed) == []


def test_an_address_is_a_permalink_and_back_goes_back(at: At) -> None:
    browser = at("#matrix?protocol=xlstm&q=lstm&cell=xlstm|majority|lstm")
    assert browser.js(OPEN) and "LSTM on majority" in browser.js("return document.getElementById('panel').innerText")
    browser.press("\ue00c", "#close")  # Escape
    assert browser.until("return !location.hash.includes('cell=')") and not browser.js(OPEN)
    assert "q=lstm" in browser.js(HASH)
    browser.click("#tabs a[href='#cost']")
    browser.back()
    assert browser.js("return document.getElementById('c-q').value") == "lstm"
    browser.js("location.hash = '#nowhere?x=1'")
    assert browser.js(TITLE).startswith("How far up")


def test_a_cell_opens_and_closes(at: At) -> None:
    browser = at("#matrix?protocol=xlstm")
    cells = "#body button.cell"
    text = "return document.getElementById('panel').innerText"
    place = (
        "return [...document.querySelectorAll(arguments[0])].findIndex((one) => one.textContent.includes(arguments[1]))"
    )
    browser.click(cells, browser.js(place, cells, "none of 1 finished"))
    said = browser.js(text)
    assert QUOTES in said and f"failed: {IMAGE}" in said and "No seed finished" in said
    browser.press("\ue00c", "#close")
    assert not browser.js(OPEN)
    assert "none of 1 finished" in browser.js("return document.activeElement.textContent")  # where one was before
    browser.click(cells, browser.js(place, cells, "0.51"))
    said = browser.js(text)
    for part in (f"LSTM on {IMAGE}", "0.51 [0.50, 0.51]", "0.001 (chosen)", "c0ffee", SCRIPT, "0 of 2 solved it"):
        assert part in said, part
    quoted = IMAGE.replace("<", "'<", 1) + "'"
    assert f"ladder run {quoted} lstm --protocol xlstm --train.lr 0.001 --seed 1" in said.replace("\n", "")
    charts = (
        "return [...document.querySelectorAll('#panel svg.chart')].map((one) => one.querySelectorAll('.mark').length)"
    )
    assert browser.js(charts) == [4, 2, 2]  # the medians of four lengths; the ends of both curves
    browser.click("#close")
    assert not browser.js(OPEN)


def test_lengths_are_where_their_numbers_say(at: At) -> None:
    """Accuracies .9 .7 .55 .6, scaled .8 .4 .1 .2 between the lines of 0 and 1."""
    browser = at(f"#matrix?protocol=xlstm&cell={'xlstm|majority|lstm'}")
    dots = "return [...document.querySelectorAll('#panel svg.chart')][0].querySelectorAll('.mark')"
    found = browser.js(
        f"{dots.replace('return ', 'const dots = ')}; return [...dots].map((dot) => dot.transform.baseVal[0].matrix.f)"
    )
    lines = "return [...document.querySelectorAll('#panel svg.chart')[0].querySelectorAll('text')]"
    ends = dict(browser.js(f"{lines}.map((text) => [text.textContent, Number(text.getAttribute('y')) - 4])"))
    shares = [(ends["0"] - height) / (ends["0"] - ends["1"]) for height in found]
    assert shares == pytest.approx([0.8, 0.4, 0.1, 0.2], abs=1e-3)
    table = browser.js("return [...document.querySelectorAll('#panel details tbody tr')].map((row) => row.textContent)")
    assert table[0] == "40..640.8000.800  0.8000.200" and len(table) == 4


def test_the_panel_of_a_rung_says_what_theory_says(at: At) -> None:
    browser = at("#ladder?cell=climb-v1|parity|mamba")
    said = browser.js("return document.getElementById('panel').innerText")
    assert "“count mod 2” (parity) in 1 of 2 seeds" in said and "Theory: ✗ cannot." in said
    browser.click("#panel-names a", 1)
    assert not browser.js(OPEN) and browser.js(TITLE) == "parity"


@pytest.mark.parametrize(
    ("address", "heads", "line"),
    [
        ("#ladder?q=mamba", "model,transition,rung", "mamba,diagonal,count mod 2,parity,parity,not learnt,1,0,2,"),
        (
            "#matrix?protocol=xlstm&q=lstm",
            "protocol,task,class",
            "xlstm,majority,counter,lstm,0.001,0.505,0.5,0.51,0,2",
        ),
        ("#lengths?models=lstm&protocol=xlstm", "protocol,task,model,length", "xlstm,majority,lstm,512,0.2,0.2,0.2,2,"),
        ("#cost", "model,accuracy_of,accuracy,train", "lstm,climb-v1: rungs held,11,80256,"),
        ("#tasks?q=parity", "task,class,version", "parity,regular,1,"),
        ("#task?name=parity", "task,protocol,label", "parity,climb-v1,parity,lstm,0.95,0.95,0.95,2,2"),
        ("#models?q=lstm", "model,title,family", "lstm,LSTM,recurrent,1997,"),
        ("#model?name=mamba", "model,protocol,task", "mamba,climb-v1,parity,regular,0.001,0.575,0.2,0.95,1,2"),
        ("#corner", "model,state_tracking,state_tracking_low", ""),
        ("#theory?q=diagonal", "kind,model_or_transition", "theory,diagonal,parity,cannot,"),
        ("#worlds", "floor", "top-1,0.1,0.2"),
        ("#add", "step,command", "climb,ladder climb my_mean"),
        ("#about", "protocol,task,model,seed", "xlstm,majority,lstm,0,0.001,done"),
    ],
)
def test_every_view_is_a_table_to_take_away(at: At, address: str, heads: str, line: str) -> None:
    browser = at(address)
    browser.js(KEPT)
    browser.click(".exports button", 1)
    first, *lines = browser.js("return window.kept.text()").split("\n")
    assert heads in first and any(line in each for each in lines), lines[:5]


def test_what_to_cite_are_this_work_and_the_papers_shown(at: At) -> None:
    browser = at("#matrix?protocol=xlstm_cpu&paper=xlstm")
    browser.js(KEPT)
    browser.click(".exports button", 2)
    said = browser.js("return window.kept.text()")
    assert said.startswith("@misc{chomsky_ladder,") and "author = {Beck and others}" in said
    assert "@misc{lstm," in said and "mamba" not in said and said.count("{") == said.count("}")


@pytest.mark.parametrize("address", ["#ladder", "#matrix?protocol=xlstm", "#task?name=parity", "#worlds"])
def test_every_view_is_a_picture_to_take_away(at: At, address: str) -> None:
    browser = at(address)
    browser.js(KEPT)
    browser.click(".exports button", 0)
    wait = "return new Promise((done) => { const look = () => window.kept ? window.kept.arrayBuffer().then((b) => "
    wait += "done([...new Uint8Array(b).slice(0, 24)])) : setTimeout(look, 20); look(); })"
    head = browser.js(wait)
    assert head[:8] == [0x89, 0x50, 0x4E, 0x47, 0x0D, 0x0A, 0x1A, 0x0A]
    width = int.from_bytes(head[16:20], "big")
    assert width > 600


def test_a_picture_has_the_colours_of_the_theme_and_its_words(at: At) -> None:
    browser = at("#ladder")
    made = "return new XMLSerializer().serializeToString(svgOf(document.getElementById('body'), 'A title').svg)"
    light = browser.js(made)
    browser.click("#theme")
    browser.click("#theme")  # dark
    dark = browser.js(made)
    browser.click("#theme")
    for words in ("A title", "Mamba", ">2/2<", "Chomsky Ladder, "):
        assert words in light and words in dark
    assert 'fill="rgb(255, 255, 255)"' in light.partition("<text")[0] and 'fill="rgb(20, 22, 26)"' in dark


def test_the_address_is_copied_or_said(at: At) -> None:
    browser = at("#cost")
    browser.click(".exports button", 3)
    wait = "return new Promise((done) => setTimeout(() => done(document.getElementById('said').textContent), 100))"
    assert "ddress" in browser.js(wait)


@pytest.mark.parametrize("width", [390, 1440])
@pytest.mark.parametrize("view", [*VIEWS, "task?name=mqar", "model?name=lstm", "matrix?protocol=quick (train.steps=9)"])
def test_nothing_is_wider_than_the_screen(at: At, width: int, view: str) -> None:
    browser = at("")
    browser.sized(width)
    browser.js("location.hash = `#${arguments[0]}`", view)
    needed, there = browser.js(EXTENT)
    assert needed <= there <= width


def test_a_phone_has_strips_a_drawer_and_a_picker(browser: Browser, many: Path) -> None:
    browser.sized(390)
    browser.go(many, "#ladder")
    squares = "return [...document.querySelectorAll('#body .strip')].map((one) => one.querySelectorAll('.cell').length)"
    assert browser.js(squares) == [12] * 8
    assert browser.js("return document.querySelector('#body .strip .cell').getBoundingClientRect().width") > 24
    browser.click("#controls summary")
    assert browser.until("return isDrawerOpen")
    chosen = "const one = document.getElementById(arguments[0]); one.value = arguments[1]; "
    chosen += "one.dispatchEvent(new Event('change'))"
    browser.js(chosen, "c-sort", "-recall")
    assert browser.js(HASH) == "#ladder?sort=-recall" and browser.js("return document.querySelector('.drawer').open")
    assert browser.js("return document.querySelector('.drawer summary').textContent") == "Filters (1)"
    browser.js("document.querySelector('#body .strip .cell').click()")
    assert browser.js(OPEN) and browser.js("return document.getElementById('panel').innerText").find("LSTM on") >= 0
    browser.go(many, "#lengths?models=lstm")
    assert browser.js("return document.querySelectorAll('#controls .chips[data-name=models]').length") == 0
    browser.js(chosen, "c-models", "mamba")
    assert browser.js(HASH) == "#lengths?models=lstm~mamba"
    browser.js("document.querySelector('.drawer .chip').click()")
    assert browser.js(HASH) == "#lengths?models=mamba"
    browser.go(many, "#model?name=mamba")
    right = "return document.querySelector('#body .card .box').getBoundingClientRect().right"
    assert browser.js(right) < 390 and browser.js("return document.querySelector('.drawer')") is None
    assert browser.complaints() == []


@pytest.mark.parametrize("width", [390, 1440])
def test_no_panel_is_wider_than_the_screen(at: At, width: int) -> None:
    browser = at("")
    browser.sized(width)
    wide = "const panel = document.getElementById('panel'); openCell(arguments[0]); const found = [panel.scrollWidth, "
    wide += "panel.clientWidth]; panel.close(); return found"
    for cell in range(0, browser.js("return cells.length"), 7):
        needed, there = browser.js(wide, cell)
        assert needed <= there <= width, cell


def test_the_theme_turns(at: At) -> None:
    browser = at("")
    ground = "return getComputedStyle(document.body).backgroundColor"
    colours = []
    for scheme in ("light", "dark"):
        browser.devtools("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        colours.append(browser.js(ground))
    light, dark = colours
    assert light == "rgb(255, 255, 255)" and dark == "rgb(20, 22, 26)"
    for expected in (light, dark, dark):  # light, dark, and the system's again
        browser.click("#theme")
        assert browser.js(ground) == expected


def test_it_is_walked_with_the_keyboard(at: At) -> None:
    browser = at("#ladder")
    browser.press("\ue004", "body")  # Tab
    assert browser.js("return document.activeElement.id") == "skip"  # out of sight until then
    browser.press("\ue007", "#skip")  # Enter
    assert browser.js("return document.activeElement.id") == "main"
    browser.press("\ue007", "#body button.cell")
    assert browser.js(OPEN) and browser.js("return document.activeElement.id") == "close"
    scopes = "return [...document.querySelectorAll('#body th')].filter((one) => !one.scope).length"
    assert browser.js(scopes) == 0
    captions = "return [...document.querySelectorAll('#body table')].filter((one) => !one.caption).length"
    assert browser.js(captions) == 0


def test_a_page_of_one_run_and_nothing_else_stands(browser: Browser, tmp_path: Path) -> None:
    from chomsky_ladder.harness.page.html import page
    from support.records_by_hand import frame, record

    (tmp_path / "page.html").write_text(page(frame(record())))
    for view in VIEWS:
        browser.go(tmp_path / "page.html", f"#{view}")
        assert browser.js("return document.getElementById('main').innerText.length") > 20
        for act in range(3):
            browser.click(".exports button", act)
    assert browser.complaints() == []


def test_it_is_painted_at_once(at: At) -> None:
    """The numbers of a page are drawn before a reader would wait; a busy machine is given thrice the time."""
    browser = at("#ladder")
    script = "return new Promise((done) => new PerformanceObserver((seen) => done(seen.getEntries()[0].startTime))"
    painted = browser.js(f"{script}.observe({{ type: 'paint', buffered: true }}))")
    assert 0 < painted < 900


def test_without_a_script_the_tables_are_there(browser: Browser, file: Path) -> None:
    found = []
    for _ in range(3):  # a busy browser may load the page before it has heard that scripts are off
        browser.devtools("Emulation.setScriptExecutionDisabled", value=True)
        try:
            browser.sized(1440)
            browser.go(file)
        finally:
            browser.devtools("Emulation.setScriptExecutionDisabled", value=False)
        if found := browser.js("return [...document.querySelectorAll('noscript h2')].map((one) => one.textContent)"):
            break
    assert found[0] == "The ladder: climb-v1" and "xlstm" in found
    heads = browser.js("return [...document.querySelectorAll('noscript table')].map((one) => one.rows[0].innerText)")
    assert all(name in json.dumps(heads) for name in ("remember", "majority")) and len(LEVELS) == 4
