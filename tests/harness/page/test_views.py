"""Every control of every view, clicked in a browser: what it changes in sight, and in the address."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from chomsky_ladder.harness.page.html import page
from chomsky_ladder.harness.store.labels import Identity
from chomsky_ladder.harness.store.titles import title_of
from support.browser import Browser
from support.pages import HOSTILE, LEVELS, QUOTES, SCRIPT, climb
from support.records_by_hand import frame

At = Callable[[str], Browser]
HASH = "return decodeURIComponent(location.hash)"
ROWS = (
    "return [...document.querySelectorAll('#body tbody:first-of-type tr[data-model]')].map((one) => one.dataset.model)"
)
TASKS = "return [...document.querySelectorAll('#body th[data-task]')].map((one) => one.dataset.task)"
PANELS = "return [...document.querySelectorAll('#body figure[data-task]')].map((one) => one.dataset.task)"
TEXT = "return document.getElementById('body').innerText"


def said(browser: Browser, selector: str) -> list[str]:
    return browser.js("return [...document.querySelectorAll(arguments[0])].map((one) => one.textContent)", selector)


def choose(browser: Browser, control: str, value: str) -> None:
    """Choose a value in a select, as a reader does."""
    script = "const one = document.getElementById(arguments[0]); one.value = arguments[1]; "
    browser.js(f"{script}one.dispatchEvent(new Event('change', {{ bubbles: true }})); return one.value", control, value)


def slide(browser: Browser, control: str, steps: int) -> str:
    """Move a slider with the arrow keys; return what it says afterwards."""
    browser.press(("\ue014" if steps > 0 else "\ue012") * abs(steps), f"#{control}")
    return browser.js("return document.getElementById(arguments[0]).getAttribute('aria-valuetext')", control)


def chip(browser: Browser, group: str, value: str) -> bool:
    """Press it; whether it is pressed then."""
    selector = f".chips[data-name='{group}'] .chip[data-value='{value}']"
    browser.click(selector)
    return browser.js("return document.querySelector(arguments[0]).ariaPressed === 'true'", selector)


def test_the_ladder(at: At) -> None:
    browser = at("")
    assert browser.js(ROWS) == ["lstm", "mamba"]
    assert said(browser, "#body tbody tr:first-child .count")[:3] == ["2/2", "2/2", "2/2"]
    labels = browser.js(
        "return [...document.querySelectorAll('#body tr[data-model=mamba] .cell')].map((o) => o.ariaLabel)"
    )
    assert labels[2] == "Mamba, count mod 2: 1 of 2 seeds, not learnt; theory cannot"
    assert labels[-1] == "Mamba, recall: not run; theory open"
    marks = "return ['can', 'cannot', 'open'].map((one) => document.querySelectorAll(`#body tbody .${one}`).length)"
    assert browser.js(marks) == [19, 3, 2]
    assert "Excluded, and yet held at these lengths (1)" in browser.js(TEXT)
    browser.press("mam", "#c-q")
    assert browser.js(ROWS) == ["mamba"] and browser.js(HASH) == "#ladder?q=mam"
    browser.press("\ue003" * 3, "#c-q")
    assert chip(browser, "family", "recurrent") and browser.js(ROWS) == ["lstm"]
    assert not chip(browser, "family", "recurrent") and browser.js(ROWS) == ["lstm", "mamba"]
    choose(browser, "c-by", "state")
    assert browser.js(ROWS) == ["mamba", "lstm"]  # diagonal stands before lstm
    assert said(browser, "#body tr.kind")[0].startswith("diagonal: diagonal, with eigenvalues")
    browser.click("#body .surprises button", 0)
    assert "Theory: ✗ cannot" in browser.js("return document.getElementById('panel').innerText")


def test_nothing_lies_over_anything_else(at: At) -> None:
    """Counts stand on one ground, rung names and long labels in their columns, names of points apart."""
    browser = at("")
    left = "return [...document.querySelectorAll('#body tr[data-model=mamba] .count.off')].map((o) => o.getBBox().x)"
    assert min(browser.js(left)[::2]) > 34  # beside the half that is held
    wide = "return [...document.querySelectorAll(arguments[0])].filter((o) => o.scrollWidth > o.clientWidth).length"
    assert browser.js(wide, "#body thead b") == 0
    browser = at("#models")
    assert browser.js(wide, "#body tbody th") == 0
    browser = at("#cost")
    many = "const taken = [markAt(300, 200)], svg = document.querySelector('#body svg.chart'); for (let i = 0; i < 12;"
    many += " i++) nameBeside(svg, taken, `Model ${i}`, 300 + i, 200, 700); "
    many += "return taken.filter((a) => taken.some((b) => "
    overlap = "a !== b && a.left < b.right && a.right > b.left && a.top < b.bottom && a.bottom > b.top)).length"
    assert browser.js(many + overlap) == 0
    assert said(browser, "#body svg.chart .label")[2:4] == ["Model 0", "Model 1"]


def test_the_matrix_opens_on_the_climb(at: At) -> None:
    browser = at("#matrix")
    assert browser.js("return document.getElementById('title').textContent").endswith(": climb-v1")
    choose(browser, "c-protocol", "xlstm_cpu")
    assert browser.js(HASH) == "#matrix?protocol=xlstm_cpu"


def test_the_matrix_sorts(at: At) -> None:
    browser = at("#matrix?protocol=xlstm")
    column = "#body th[data-task='majority'] button"
    sorts = "return [...document.querySelectorAll('#body [aria-sort]')].map((head) => head.ariaSort)"
    by_name = sorted(["lstm", "mamba", SCRIPT, QUOTES], key=lambda model: model.lower())
    assert sorted(browser.js(ROWS)) == sorted(by_name) and browser.js(ROWS)[-2:] == ["lstm", "mamba"]
    browser.click(column)
    assert browser.js(ROWS)[:2] == ["lstm", "mamba"]
    assert browser.js(sorts).count("descending") == 1 and browser.js(HASH).endswith("sort=-majority")
    assert browser.js("return document.activeElement.dataset.key") == "sort majority"  # one can press it again
    browser.press("\ue007", column)
    assert browser.js(ROWS)[:2] == ["mamba", "lstm"]  # what was not measured stays last
    browser.click("#body th.corner button")
    browser.click("#body th.corner button")
    assert browser.js(ROWS)[-2:] == ["lstm", "mamba"] and "sort" not in browser.js(HASH)
    browser.click("#body thead tr:last-child th:nth-last-child(2) button")
    assert browser.js(ROWS)[:2] == [SCRIPT, "mamba"]  # by weights


def test_the_matrix_filters(at: At) -> None:
    browser = at("#matrix?protocol=xlstm")
    assert set(browser.js(TASKS)) == set(LEVELS)
    browser.press("LSTM mamba", "#c-q")
    assert browser.js(ROWS) == ["lstm", "mamba"]
    browser.press("sort maj", "#c-tasks")
    assert browser.js(TASKS) == ["majority", "bucket_sort"]
    assert "2 of 4 models, 2 of 4 tasks." in browser.js(TEXT)
    assert chip(browser, "class", "counter") and browser.js(TASKS) == ["majority"]
    assert chip(browser, "family", "state space") and browser.js(ROWS) == ["mamba"]
    browser.press("nothing", "#c-tasks")
    browser.js(
        "document.getElementById('c-q').value = 'zzz'; document.getElementById('c-q').dispatchEvent(new Event('input'))"
    )
    assert "Nothing of this protocol passes the filter." in browser.js(TEXT)


def test_the_matrix_by_size(at: At) -> None:
    browser = at("#matrix?protocol=xlstm&q=lstm mamba script")
    assert SCRIPT in browser.js(ROWS)
    assert slide(browser, "c-parameters", -1) == "2k" and SCRIPT not in browser.js(ROWS)
    assert browser.js(ROWS) == ["lstm", "mamba"]
    assert slide(browser, "c-state", -2) == "100B" and browser.js(ROWS) == ["lstm"]
    assert "parameters=2000" in browser.js(HASH) and "state=100" in browser.js(HASH)


def test_the_matrix_shows_and_hides(at: At) -> None:
    browser = at("#matrix?protocol=xlstm")
    assert len(said(browser, "#body tbody.floors tr")) == 2 and "[0.50, 0.51]" in browser.js(TEXT)
    browser.click("#c-floors")
    assert said(browser, "#body tbody.floors tr") == []
    browser.click("#c-range")
    assert "[0.50, 0.51]" not in browser.js(TEXT) and "0/2" in browser.js(TEXT)
    assert browser.js(HASH).endswith("floors=0&range=0")
    choose(browser, "c-protocol", "xlstm_cpu")
    assert browser.js(ROWS) == ["lstm"] and "not rounded" in browser.js(TEXT) and "4 bits" in browser.js(TEXT)
    choose(browser, "c-paper", "xlstm")
    assert "paper 1.00 ± 0.00" in browser.js(TEXT) and "Beck et al. 2024" in browser.js(TEXT)
    choose(browser, "c-protocol", "quick (train.steps=9)")
    assert len(browser.js(ROWS)) == len(HOSTILE)
    assert "smoke run" in browser.js("return document.getElementById('lead').innerText")


def test_accuracy_by_length(at: At) -> None:
    browser = at("#lengths?protocol=xlstm")
    assert set(browser.js(PANELS)) == set(LEVELS)
    lines = "return document.querySelectorAll('#body figure[data-task=majority] path.line').length"
    assert browser.js(lines) == 2
    assert chip(browser, "models", "lstm") and browser.js(lines) == 1
    assert chip(browser, "tasks", "majority") and browser.js(PANELS) == ["majority"]
    marks = "return document.querySelectorAll('#body figure[data-task=majority] .mark').length"
    assert browser.js(marks) == 4
    assert slide(browser, "c-from", 2) == "65" and browser.js(marks) == 3
    assert slide(browser, "c-to", -1) == "128" and browser.js(marks) == 2
    assert browser.js(HASH) == "#lengths?protocol=xlstm&models=lstm&tasks=majority&from=65&to=128"
    browser.click("#body details summary")
    assert [row[:5] for row in said(browser, "#body details tbody tr")] == ["LSTMm"] * 2
    browser.click("#body figure .note button")
    assert "LSTM on majority" in browser.js("return document.getElementById('panel').innerText")
    browser.click("#close")
    choose(browser, "c-protocol", "climb-v1")
    assert browser.js(PANELS) == ["majority"]  # which both have; the lengths of the other one are forgotten
    assert not chip(browser, "tasks", "majority") and len(browser.js(PANELS)) == 11


def test_what_it_costs(at: At) -> None:
    browser = at("#cost")
    label = "return document.querySelector('#body svg.chart').ariaLabel"
    assert browser.js(label).startswith("rungs held of climb-v1 by training")
    assert said(browser, "#body svg.chart .label") == ["LSTM", "Mamba"] and browser.js(ROWS)[:2] == ["lstm", "mamba"]
    choose(browser, "c-x", "decode")
    assert "decoding one at a time" in browser.js(label) and browser.js(HASH) == "#cost?x=decode"
    choose(browser, "c-match", "state")
    assert "4,096 bytes of state" in browser.js("return document.getElementById('lead').innerText")
    choose(browser, "c-protocol", "xlstm")
    assert browser.js(label).startswith("mean scaled accuracy of xlstm")
    browser.click("#body th button", 0)
    assert browser.js(ROWS)[-1] != "lstm" and "sort=-model" in browser.js(HASH)
    browser.press("mamba", "#c-q")
    assert browser.js(ROWS) == ["mamba"]
    browser.press("\ue003" * 5, "#c-q")
    assert chip(browser, "family", "recurrent") and browser.js(ROWS) == ["lstm"]


def test_the_tasks(at: At) -> None:
    browser = at("#tasks")
    names = "return [...document.querySelectorAll('#body tbody th a')].map((one) => one.textContent)"
    assert {"parity", "dyck", "mqar"} <= set(browser.js(names))
    assert chip(browser, "class", "counter")
    assert browser.js(names) == ["counter_language", "majority", "majority_count"]
    browser.press("count", "#c-q")
    assert "dyck" not in browser.js(names)
    browser.click("#body tbody th a", 0)
    assert browser.js(HASH) == "#task?name=counter_language"


def test_a_task(at: At) -> None:
    browser = at("#task?name=parity")
    shown = browser.js(TEXT)
    for part in (
        "An example",
        "Its automaton",
        "Floors",
        "Best models",
        "Theory",
        "star-free",
        "ladder describe parity",
    ):
        assert part in shown, part
    assert said(browser, "#body .tokens.answer span") == ["b"]
    drawn = "return ['state', 'edge'].map((one) => document.querySelectorAll(`#body svg.automaton .${one}`).length)"
    assert browser.js(drawn) == [2, 6]
    assert said(browser, "#body .left3 tbody tr")[0].startswith("LSTMclimb-v1parity0.952/2")
    browser.click("#body .left3 button", 0)
    assert "LSTM on parity" in browser.js("return document.getElementById('panel').innerText")
    browser.click("#close")
    choose(browser, "c-name", "dyck")
    assert browser.js("return document.getElementById('title').textContent") == "dyck"
    assert "Its automaton" not in browser.js(TEXT)


def test_the_models(at: At) -> None:
    browser = at("#models")
    assert len(said(browser, "#body h2")) >= 9
    assert chip(browser, "family", "memory")
    assert said(browser, "#body h2") == ["memory"] and len(said(browser, "#body tbody tr")) == 5
    browser.press("stack", "#c-q")
    (row,) = said(browser, "#body tbody tr")
    assert row.startswith("Stack-RNN2022arXiv:2207.02098")
    browser.click("#body tbody th a")
    assert browser.js(HASH) == "#model?name=stack_rnn" and "It has not been run here." in browser.js(TEXT)


def test_a_model(at: At) -> None:
    browser = at("#model?name=mamba")
    assert said(browser, "#body h2")[0] == "0 of 11 rungs" or said(browser, "#body h2")[0] == "0 of 12 rungs"
    assert "h_t" in said(browser, "#body pre.equation")[0]
    rungs = said(browser, "#body .card tbody tr")
    assert len(rungs) == 12 and rungs[-1].startswith("remember") and "✓ can" in rungs[-1]
    assert "arXiv:2312.00752" in browser.js("return document.getElementById('lead').innerText")
    browser.click("#body .card button", 0)
    assert "Mamba on" in browser.js("return document.getElementById('panel').innerText")
    browser.click("#close")
    choose(browser, "c-name", "lstm")
    assert browser.js("return document.getElementById('title').textContent") == title_of(Identity("", "", "lstm", {}))


def test_boards(at: At) -> None:
    browser = at("#worlds")
    boards = "return document.querySelectorAll('#body svg.board').length"
    assert browser.js(boards) == 3 + 2
    wrong = "return document.querySelectorAll('#body svg.board .wrong').length"
    assert browser.js(wrong) == 2 and "after ply 2" in browser.js(TEXT)
    assert slide(browser, "c-ply", -1) == "1" and "after ply 1" in browser.js(TEXT)
    choose(browser, "c-edit", "erase")
    assert browser.js(boards) == 3
    choose(browser, "c-game", "run")
    assert said(browser, "#body table tbody tr") == ["top-10.10.2"]
    assert browser.js("return document.querySelectorAll('#body svg.board .piece').length") == 0
    choose(browser, "c-study", "chess, cpu")
    pieces = "[...document.querySelector('#body svg.board').querySelectorAll('.piece')]"
    places = browser.js(f"return {pieces}.map((one) => one.getAttribute('y'))")
    assert places == ["57", "57"]  # in the first row, which lies at the bottom
    assert "give a piece to the other side" in browser.js("return document.getElementById('c-edit').innerText")


def test_theory_and_literature(browser: Browser, many: Path) -> None:
    browser.sized(1440)
    browser.go(many, "#theory")
    proven = said(browser, "#body .proven tbody tr")
    assert next(row for row in proven if row.startswith("lstm")).endswith("·11/111/1")
    papers = "#body .numbers.left3 tbody tr"
    count = len(said(browser, papers))
    choose(browser, "c-papers", "agrees")
    agreed = [row for row in said(browser, papers) if "arXiv:" in row and "LSTM" in row]
    assert agreed and len(said(browser, papers)) < count and browser.js(HASH) == "#theory?papers=agrees"
    browser.press("lstm", "#c-q")
    assert [row[:4] for row in said(browser, "#body .proven tbody tr")] == ["atte", "diag", "lstm", "slst"]
    browser.js("document.querySelector('#body .left3 tbody button').click()")
    assert "Theory: ✓ can" in browser.js("return document.getElementById('panel').innerText")
    assert browser.complaints() == []


def test_add_yours_and_about(at: At) -> None:
    browser = at("#add")
    commands = said(browser, "#body .command pre")
    assert "ladder climb my_mean --plugin mine.py" in commands and "ladder page --serve" in commands
    compile(commands[0], "mine.py", "exec")
    browser.click("#body .command button")
    wait = "return new Promise((done) => setTimeout(() => done(arguments[0].textContent), 100))"
    assert browser.js(wait.replace("arguments[0]", "document.querySelector('#body .command button')")) != "Copy"
    browser.click("#tabs a[href='#about']")
    facts: Any = browser.js(TEXT)
    assert "How to read a number" in facts and "c0ffee" in facts and SCRIPT in facts
    browser.click("#body section.protocol a", 0)
    assert browser.js(HASH) == "#matrix?protocol=climb-v1"


@pytest.mark.parametrize("view", ["ladder", "matrix", "lengths", "cost"])
def test_a_model_looks_the_same_everywhere(at: At, view: str) -> None:
    browser = at(f"#{view}?protocol=climb-v1")
    script = "const made = [...document.querySelectorAll('#body .swatch .ink')]; return [...new Set(made.map((one) => "
    looked = browser.js(f"{script}one.style.getPropertyValue('--model')))]")
    assert {"#0072B2", "#009E73"} <= set(looked)


def test_stories_are_findings_with_a_view_each(browser: Browser, many: Path) -> None:
    browser.sized(1440)
    browser.go(many)
    title = "return document.getElementById('title').textContent"
    assert browser.js(title) == "One of 8 models composes A5 on most seeds, one recalls, one does both."
    names = said(browser, ".stories b")
    assert names[:4] == ["State or recall", "Learnt and lost", "Theory says can", "Negative eigenvalues"]
    browser.click(".stories a", 2)
    assert browser.js(HASH) == "#ladder?show=gap" and browser.js(title).startswith("Models hold 11 of the 21")
    assert said(browser, ".stories [aria-current] b") == ["Theory says can"]
    assert browser.js(ROWS) == ["mamba"]
    meetings = "return [...document.querySelectorAll('#body tbody .cell:not(.faded) .box')].map((o) => o.classList[1])"
    assert set(browser.js(meetings)) == {"gap"}
    choose(browser, "c-show", "")
    assert len(browser.js(ROWS)) == 8 and browser.js(HASH) == "#ladder"
    browser.click(".stories a", 3)
    assert browser.js(ROWS) == ["mamba (eigenvalues=signed)"]
    assert browser.complaints() == []


def test_the_ladder_is_sorted_by_a_rung(browser: Browser, many: Path) -> None:
    browser.sized(1440)
    browser.go(many)
    recall = "#body thead tr:last-child th:last-child button"
    browser.click(recall)
    assert browser.js(HASH) == "#ladder?sort=-recall" and browser.js(ROWS)[0] == "lstm"
    assert said(browser, "#body [aria-sort=descending] b") == ["recall"]
    browser.click(recall)
    assert browser.js(ROWS)[-1] == "lstm" and browser.js(HASH) == "#ladder?sort=recall"
    assert browser.complaints() == []


def test_pinned_models_are_compared(browser: Browser, many: Path) -> None:
    browser.sized(1440)
    browser.go(many)
    for model in ("mamba", "lstm"):
        browser.click(f"#body tr[data-model={model}] .pin")
    assert browser.js(ROWS)[:2] == ["lstm", "mamba"] and len(browser.js(ROWS)) == 8
    browser.click("#c-differ")
    assert browser.js(HASH) == "#ladder?pins=mamba~lstm&differ=1" and browser.js(ROWS) == ["lstm", "mamba"]
    assert len(said(browser, "#body thead tr:last-child b")) == 12
    assert said(browser, "#body .numbers tbody tr")[0] == "how the state moveslstmdiagonal"
    browser.go(many, "#ladder?pins=mamba~mine_1&differ=1")
    assert "What else differs" in browser.js(TEXT) and said(browser, "#body thead:first-of-type b") == []
    browser.go(many, "#ladder?pins=mine_1~mine_2~mine_3~mine_4")
    browser.click("#body tr[data-model=lstm] .pin")
    assert browser.js(HASH) == "#ladder?pins=mine_2~mine_3~mine_4~lstm"
    assert browser.complaints() == []


def test_the_ladder_moves_with_the_length(browser: Browser, many: Path) -> None:
    browser.sized(1440)
    browser.go(many)
    counts = "#body tr[data-model=lstm] .count"
    assert set(said(browser, counts)) == {"3/3"}
    assert slide(browser, "c-at", 1) == "512" and set(said(browser, counts)) == {"0/3"}
    assert browser.js(HASH) == "#ladder?at=512" and "at lengths 512" in browser.js("return document.body.innerText")
    assert slide(browser, "c-at", -2) == "40..64" and len(said(browser, "#body tbody .count.on")) == 8 * 12
    choose(browser, "c-cells", "accuracy")
    assert set(said(browser, counts)) == {"1.00"} and browser.js(HASH) == "#ladder?at=64&cells=accuracy"
    assert slide(browser, "c-at", -1) == "of training" and set(said(browser, counts)) == {"0.80"}
    assert slide(browser, "c-at", 2) == "225..256" and browser.js(HASH) == "#ladder?cells=accuracy"
    assert browser.complaints() == []


def test_a_point_of_the_scatter_leads_to_its_model(browser: Browser, many: Path) -> None:
    browser.sized(1440)
    browser.go(many, "#corner")
    labels = browser.js("return [...document.querySelectorAll('#body svg.chart a')].map((one) => one.ariaLabel)")
    assert len(labels) == 8 and labels[0] == "LSTM: state tracking 0.98, retrieval 0.98"
    choose(browser, "c-y", "memory")
    assert browser.js("return document.getElementById('title').textContent") == "State tracking against memory"
    assert browser.js(HASH) == "#corner?y=memory"
    browser.click("#body svg.chart a .mark")
    assert browser.js(HASH) == "#model?name=lstm"
    assert browser.complaints() == []


def test_of_many_models_a_chart_shows_those_that_get_furthest(browser: Browser, tmp_path: Path) -> None:
    models = ("lstm", *(f"mine_{i}" for i in range(9)))
    (tmp_path / "page.html").write_text(page(frame(*climb(models=models))))
    browser.sized(1440)
    browser.go(tmp_path / "page.html", "#lengths?protocol=climb-v1")
    assert len(said(browser, "#body > .key li")) == 8 and "The 8 that get furthest of 10" in browser.js(TEXT)
    assert chip(browser, "models", "mine_8") and len(said(browser, "#body > .key li")) == 1
    browser.go(tmp_path / "page.html", "#ladder")
    assert len(browser.js(ROWS)) == 10
    assert browser.complaints() == []
