"""The numbers of a climb are those computed by hand: seeds that hold, medians, how theory and practice meet."""

import json
import re
from dataclasses import replace
from typing import Any

import pandas as pd
import pytest

from chomsky_ladder.harness.climb.card import card
from chomsky_ladder.harness.climb.text import markdown, terminal
from chomsky_ladder.harness.config.presets import PROTOCOLS
from chomsky_ladder.harness.config.registry import find_task
from chomsky_ladder.harness.figures.kinds.climb import climb as picture
from chomsky_ladder.harness.figures.kinds.corner import corner
from chomsky_ladder.harness.figures.kinds.corner import draw as draw_corner
from chomsky_ladder.harness.figures.plot import Scene
from chomsky_ladder.harness.figures.style import style
from chomsky_ladder.harness.stats.aggregates import Estimate
from chomsky_ladder.harness.stats.climb import climbs_of, nearest, rung_of, strings_there
from chomsky_ladder.harness.stats.families import family_scores, family_text
from chomsky_ladder.harness.stats.looks import looks
from chomsky_ladder.harness.stats.view import cells_of
from chomsky_ladder.harness.tables.write import table
from chomsky_ladder.harness.train.data import evaluation_lengths
from support.records_by_hand import frame, record

KINDS = {"can": "lstm", "cannot": "diagonal", "own": ""}


def rows(model: str, task: str, *longest: float, transition: str, demand: str = "parity", **more: Any) -> list[dict]:
    """Seeds of a cell whose raw accuracies in the longest bin are those given."""
    bins = [{"test_bins": json.dumps({"40..64": 1.0, "225..256": value})} for value in longest]
    place = {"protocol": "climb-v1", "task": task, "model": model, "transition": transition, "demand": demand}
    return [record(**place, **each, seed=seed, extrapolation='{"512":0.75}', **more) for seed, each in enumerate(bins)]


def records() -> Any:
    s3 = "word_problem (group=S3, inputs=all)"
    return frame(
        *rows("a", "parity", 1.0, 0.96, 0.5, transition="lstm", steps_to_99=400),
        *rows("a", "word_problem", 0.5, 0.5, 0.5, transition="lstm", demand="non-solvable"),
        *rows("a", s3, 1.0, 1.0, 1.0, transition="lstm", demand="solvable"),
        *rows("b", "parity", 0.5, 0.5, 0.96, transition="diagonal"),
        *rows("c", "parity", 1.0, 1.0, 0.5, transition="diagonal"),
        *rows("c", "parity", transition="diagonal"),
        record(protocol="climb-v1", task="parity", model="d", transition="", demand="parity", status="failed", steps=0),
        record(protocol="xlstm", model="e"),
        *rows("f", "parity (count=input)", 1.0, transition="lstm"),
    )


def test_seeds_that_hold_and_what_theory_says() -> None:
    found = {climb.model: climb for climb in climbs_of(records(), "climb-v1")}
    assert list(found) == ["a", "c", "b", "d"]  # another task's settings are no rung
    step = {name: {step.rung.name: step for step in climb.steps} for name, climb in found.items()}
    parity = step["a"]["count mod 2"]
    assert (parity.held, parity.n, parity.holds, parity.learnt_at) == (2, 3, True, 400)
    assert parity.at("225..256") == 0.92 and parity.further == 0.5 and parity.scores == (1.0, 0.92, 0.0)
    assert [step[name]["count mod 2"].meeting for name in "abcd"] == [
        *("can, held", "cannot, not held", "cannot, yet held", "open")
    ]
    assert step["a"]["compose A5"].meeting == "can, not held" and step["a"]["compose S3"].meeting == "can, held"
    assert (found["a"].held, found["a"].run, found["a"].is_whole) == (2, 3, False)
    assert step["d"]["count mod 2"].scores == (0.0,) and found["d"].held == 0
    assert step["b"]["nest"].n == 0 and step["b"]["nest"].learnt_at is None
    assert [one.model for one in nearest(found["a"], list(found.values()))] == ["c", "b", "d"]


def test_a_cell_is_close_where_other_strings_might_have_it_otherwise() -> None:
    """There are 142 strings: a raw accuracy of .95 is a scaled one of .9 exactly."""
    found = {
        "close": rows("close", "parity", 1.0, 0.955, 0.94, transition="lstm"),
        "held": rows("held", "parity", 1.0, 1.0, 0.94, transition="lstm"),
        "not held": rows("not held", "parity", 0.94, 0.5, 0.5, transition="lstm"),
    }
    step = {
        one.model: one.steps[2] for one in climbs_of(frame(*(row for of in found.values() for row in of)), "climb-v1")
    }
    assert strings_there(PROTOCOLS["climb-v1"]) == 142
    between = {name: one.held_between for name, one in step.items()}
    assert between == {"close": (1, 3), "held": (2, 3), "not held": (0, 1)}
    assert [name for name, one in step.items() if one.is_close] == ["close"] and step["close"].held == 2
    made = table(frame(*found["close"]), "climb")
    assert made.sheets[0].lines[0].entries[6].lines == ("● 2/3 ✓ ≈",) and "142 strings" in made.sheets[0].lead[0]
    assert made.data[["held_least", "held", "held_most"]].iloc[0].tolist() == [1, 2, 3]
    on = card(climbs_of(frame(*found["close"]), "climb-v1")[0], [], protocol="climb-v1", hours=0.0)
    assert "≈2/3" in terminal(on, colour=False) and "≈: the 142 strings" in markdown(on)
    sure = card(climbs_of(frame(*found["held"]), "climb-v1")[0], [], protocol="climb-v1", hours=0.0)
    assert "≈" not in terminal(sure, colour=False)


def test_a_seed_holds_a_rung_or_lost_it_or_never_learnt_it() -> None:
    """Learnt is .99 at the lengths of training; a cell is what became of most of its seeds."""
    cells = {
        "held": [(1.0, 1.0), (1.0, 0.9), (0.5, 1.0)],
        "lost": [(0.5, 1.0), (0.94, 0.996), (0.5, 0.5)],
        "not learnt": [(0.5, 0.99), (0.5, 0.5), (1.0, 1.0)],
    }
    made = frame(
        *(
            {**row, "in_distribution": inside}
            for name, seeds in cells.items()
            for row, (_, inside) in zip(
                rows(name, "parity", *(longest for longest, _ in seeds), transition="lstm"), seeds, strict=True
            )
        )
    )
    steps = {one.model: one.steps[2] for one in climbs_of(made, "climb-v1")}
    assert {name: step.outcome for name, step in steps.items()} == {name: name for name in cells}
    assert steps["lost"].outcomes == ("lost", "lost", "not learnt")
    assert steps["held"].outcomes == ("held", "held", "lost") and steps["not learnt"].outcomes[2] == "held"


def test_a_family_is_the_mean_of_its_rungs_and_only_where_all_were_run() -> None:
    both = [
        *rows("a", "flip_flop", 1.0, 1.0, transition="lstm"),
        *rows("a", "even_pairs", 0.75, 0.25, transition="lstm"),
        *rows("a", "parity", 1.0, 1.0, transition="lstm"),
    ]
    (found,) = climbs_of(frame(*both), "climb-v1")
    scores = family_scores(found)
    assert list(scores) == ["memory"] and scores["memory"].value == 0.625  # of 1, 1, and .5, 0 above chance
    low, high = scores["memory"].low, scores["memory"].high
    assert low is not None and high is not None and 0.5 <= low < 0.625 < high <= 0.75
    assert family_text(scores["memory"]) == f"0.62 [{low:.2f}, {high:.2f}]" and family_text(None) == "-"
    assert family_text(Estimate(1.0, 1.0, 0.999)) == "1.00"


def test_another_choice_of_the_learning_rate_is_counted() -> None:
    """The seeds at .01 are better in training but do not hold the rung."""
    kept = rows("a", "parity", 1.0, 1.0, transition="lstm")
    other = [
        {**row, "lr": 1e-2, "in_distribution": 1.0, "validation": 0.5}
        for row in rows("a", "parity", 0.5, 0.5, transition="lstm")
    ]
    for row in other:
        row["run_id"] += "-other"
    made = table(frame(*kept, *other), "climb")
    (line,) = (line for line in made.sheets[1].lines if line.name == "count mod 2")
    assert [entry.lines[0] for entry in line.entries][2:] == ["1", "0", "1"]
    assert made.data[["lr", "lr_by_training", "held_by_training"]].iloc[0].tolist() == [1e-3, 1e-2, 0]


def test_a_model_of_another_size_is_named() -> None:
    sizes = {"a": 100_000, "b": 314_000}
    cells = [
        row for name, size in sizes.items() for row in rows(name, "parity", 1.0, transition="lstm", parameters=size)
    ]
    (note,) = table(frame(*cells), "climb").sheets[0].notes
    assert note.startswith("Other sizes than 100,000 parameters: b") and note.endswith(" 314,000.")


@pytest.mark.parametrize("name", ["climb-v1", "climb-v2"])
def test_the_longest_strings_are_as_many_as_are_drawn(name: str) -> None:
    protocol, counts = PROTOCOLS[name], []
    for rung in protocol.rungs:
        task = find_task(rung.task)(**{**protocol.tasks.get(rung.task, {}), **rung.settings})
        low, high = protocol.eval["lengths"]
        legal = task.legal_lengths(low, high)
        drawn = evaluation_lengths(task, legal, count=protocol.eval["test"], seed=0, split="test")
        counts.append(sum(225 <= length <= 256 for length in drawn.tolist()))
    assert min(counts) == strings_there(protocol) and max(counts) < 1.02 * min(counts)


def test_a_rung_is_a_task_with_its_settings() -> None:
    climb = PROTOCOLS["climb-v1"]
    s3 = rung_of("word_problem", {"task.group": "S3", "task.inputs": "all"}, climb)
    a5 = rung_of("word_problem", {"model.d_model": 3}, climb)
    assert s3 is not None and a5 is not None and (s3.name, a5.name) == ("compose S3", "compose A5")
    assert rung_of("word_problem", {"task.group": "S5"}, climb) is None
    assert rung_of("set", {}, climb) is None


def test_the_table_and_the_picture_show_the_same() -> None:
    made = table(records(), "climb")
    line = next(line for line in made.sheets[0].lines if line.name == "a (a part: 3 of 12 rungs, 3 seeds)")
    texts = dict(
        zip([column.name for column in made.sheets[0].columns], [e.lines[0] for e in line.entries], strict=True)
    )
    assert texts["memory"] == "-" and texts["count mod 2"] == "● 2/3 ✓ ≈" and texts["nest"] == "-"
    agree = {line.name: [entry.lines[0] for entry in line.entries] for line in made.sheets[2].lines}
    assert agree["count mod 2"] == ["1", "0", "1", "1", "1"] and agree["compose A5"] == ["0", "1", "0", "0", "0"]
    of_climb = records().query("protocol == 'climb-v1'")
    drawn = picture(Scene(cells_of(of_climb), None, looks(["a"])))
    both = made.data.merge(drawn, on=["model", "rung"], suffixes=("", "_drawn"))
    assert len(both) == len(drawn) == len(made.data) == 6
    assert (both["held"] == both["held_drawn"]).all() and (both["meeting"] == both["meeting_drawn"]).all()
    assert list(dict.fromkeys(drawn["transition"])) == ["diagonal", "lstm", "not declared"]


def test_a_card_says_what_to_do_next() -> None:
    found = climbs_of(records(), "climb-v1")
    by_name = {climb.model: climb for climb in found}
    made = card(by_name["a"], found, protocol="climb-v1", hours=1.25)
    assert made.beside == ("c", "b") and made.held == 2 and made.hours == 1.25
    assert made.missing == 12, "of two learning rates, all have one"
    a5 = next(row for row in made.rows if row.rung == "compose A5")
    assert a5.command == "ladder run word_problem a --protocol climb-v1 --train.lr 0.001 --seed 0"
    assert any("has" not in line and "the same command goes on" in line for line in made.next)
    s3 = next(row for row in made.rows if row.rung == "compose S3")
    assert "--task.group S3 --task.inputs all" in s3.command and s3.best == ()
    assert "Seeds differ on count mod 2 (2 of 3). More of them: ladder climb a --seeds 5" in made.next
    odd = card(by_name["c"], found, protocol="climb-v1", against=("a",), hours=0)
    assert odd.beside == ("a",) and odd.chosen_beside
    assert any("theory says it cannot" in line and "ladder errors" in line for line in odd.next)
    shown = terminal(odd, colour=False)
    assert shown.index("compose S3") < shown.index("count mod 2")  # as one looks at a ladder
    assert "\x1b[38;5;133m" in terminal(odd, colour=True) and "\x1b" not in shown
    assert "| count mod 2 | parity | ● 2/3 |" in markdown(odd) and "`ladder run parity c " in markdown(odd)
    parity = next(row for row in odd.rows if row.rung == "count mod 2")
    assert parity.beside == ("2/3",) and parity.best == ("a 2/3", "b 1/3")


EVIL = "x (note=<img src=x onerror=alert(1)>\n# Heading \x1b[2J | [a](javascript:1) ```)"


def test_no_label_is_markup_in_a_card() -> None:
    cells = [*rows("x", "parity", 0.5, 0.5, transition="lstm"), *rows("y", "parity", 1.0, transition="lstm")]
    found = [replace(one, model=EVIL + one.model) for one in climbs_of(frame(*cells), "climb-v1")]
    made = card(found[1], found, protocol="climb-v1", hours=0, plugins=("``<b>`` \n# c",))
    text = markdown(made)
    prose = re.sub(r"(`+) .+? \1", "", text)  # without what stands in code
    assert not re.search(r"<|(?<!\\)[\[`|]", re.sub(r"^\|.*|`[^`\n]*`", "", prose, flags=re.MULTILINE)), prose
    assert "\x1b" not in text
    assert [line for line in text.splitlines() if line.startswith("#")] == [
        line for line in text.splitlines() if line.startswith(("# x", "## Theory", "## Next", "## Commands"))
    ]
    assert "\n#" not in terminal(made, colour=False)


def test_a_card_of_a_model_without_theory_names_the_nearest_misses() -> None:
    """Learnt at the lengths of training; the nearest first, two at most, and none that is at chance or held."""
    near = {"majority": 0.97, "bucket_sort": 0.92, "dyck": 0.8, "parity": 0.5, "even_pairs": 1.0}
    cells = [rows("g", task, at, at, transition="", in_distribution=1.0) for task, at in near.items()]
    (found,) = climbs_of(frame(*(row for cell in cells for row in cell)), "climb-v1")
    made = card(found, [found], protocol="climb-v1", hours=0, plugins=("mine.py",))
    tried = [line for line in made.next if "10 times the steps" in line]
    assert [line.split(":")[0] for line in tried] == ["sort", "nest"]
    assert all(line.endswith("--seed 0 --plugin mine.py --train.steps 20000") for line in tried)
    assert "declares no `transition`" in made.next[-1]


def test_no_paper_stands_beside_a_climb() -> None:
    beside = table(frame(*rows("lstm", "majority", 1.0, transition="lstm"), record()), "accuracy", against="xlstm")
    assert [sheet.title for sheet in beside.sheets] == ["xlstm"]


def test_the_corner_holds_models_with_all_rungs_of_both_families() -> None:
    s3 = "word_problem (group=S3, inputs=all)"
    asked = {"parity": 1.0, "cycle_nav": 0.75, s3: 0.5, "word_problem": 0.25, "mqar": 0.9}
    whole = [row for task, raw in asked.items() for row in rows("a", task, raw, raw, transition="lstm")]
    part = [row for task, raw in asked.items() if task != "mqar" for row in rows("b", task, raw, transition="lstm")]
    scene = Scene(cells_of(frame(*whole, *part)), None, looks(["a", "b"]))
    data = corner(scene)
    assert data["model"].tolist() == ["a"], "b has no recall"
    assert data["tracks"].tolist() == [pytest.approx((1.0 + 0.5 + 0.0 + 0.0) / 4)]  # .25 is below chance
    assert data["recalls"].tolist() == [pytest.approx(0.8)]
    with style():
        names = {text.get_text() for text in draw_corner(data, scene).axes[0].texts}
    assert names == {"a"}


def test_names_in_the_corner_do_not_overlap() -> None:
    places = [(0.01 * i, 1.0 - 0.001 * i) for i in range(12)]
    data = pd.DataFrame(
        [
            {"protocol": "climb-v1", "model": f"model{i}", "tracks": x, "tracks_low": x, "tracks_high": x}
            | {"recalls": y, "recalls_low": y, "recalls_high": y}
            for i, (x, y) in enumerate(places)
        ]
    )
    scene = Scene(cells_of(frame(*rows("a", "parity", 1.0, transition="lstm"))), None, looks(data["model"]))
    with style():
        fig = draw_corner(data, scene)
        fig.canvas.draw()
        boxes = [text.get_window_extent() for text in fig.axes[0].texts]
    assert 2 <= len(boxes) < 12, "some have room, not all"
    assert not any(one.overlaps(other) for place, one in enumerate(boxes) for other in boxes[:place])
