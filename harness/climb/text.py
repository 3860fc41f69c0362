"""A report card for a terminal, and as Markdown."""

import re
from collections.abc import Sequence

from chomsky_ladder.harness.climb.card import FURTHER, Card, Row
from chomsky_ladder.harness.config.theory import TRANSITIONS
from chomsky_ladder.harness.stats.climb import CLOSE
from chomsky_ladder.harness.stats.families import family_text
from chomsky_ladder.harness.stats.outcomes import MARKS
from chomsky_ladder.harness.store.colours import Look, painted
from chomsky_ladder.harness.tables.formats import one_line
from chomsky_ladder.harness.tables.formats import plain_markdown as md

LOOKS: dict[str, Look] = {
    "can, held": "good",
    "cannot, not held": "faint",
    "can, not held": "weak",
    "cannot, yet held": "odd",
}
HEADS = ("rung", "asks", "holds", "to 40", "longest", FURTHER, "learnt", "theory")
OTHERS = "best of the others"


def terminal(card: Card, *, colour: bool) -> str:
    """Return aligned columns, a line for each rung from the highest to the lowest, like a ladder."""
    heads = [name if name in (*HEADS, OTHERS) else _clipped(name) for name in columns(card)]
    table = [heads, *(list(map(one_line, cells(card, row))) for row in reversed(card.rows))]
    widths = [max(len(line[place]) for line in table) for place in range(len(heads))]
    left = {0, 1, 7, len(heads) - 1}
    lines = [*map(one_line, [title(card), *facts(card)]), ""]
    for place, line in enumerate(table):
        parts = [f"{c:<{w}}" if i in left else f"{c:>{w}}" for i, (c, w) in enumerate(zip(line, widths, strict=True))]
        text = f"  {'  '.join(parts).rstrip()}"
        look = LOOKS.get(card.rows[len(card.rows) - place].meeting) if place else "strong"
        lines.append(painted(text, look, on=colour))
    lines += ["", *notes(card)]
    papers = [f"  {one_line(f'{rung}: {said}')}" for rung, said in reported(card)]
    lines += ["", "what papers report", *papers] if papers else []
    lines += ["", "next", *(f"  {one_line(line)}" for line in card.next)]
    return "\n".join(lines) + "\n"


def markdown(card: Card) -> str:
    """Return the card as Markdown. Labels, titles and settings come from plugins, so no text of the card is markup."""
    heads = list(map(md, columns(card)))
    lines = [f"# {md(title(card))}", "", *(f"{md(line)}  " for line in facts(card)), "", f"| {' | '.join(heads)} |"]
    lines.append("| --- | --- | " + " | ".join(["---:"] * (len(heads) - 3)) + " | --- |")
    lines += [f"| {' | '.join(map(md, cells(card, row)))} |" for row in reversed(card.rows)]
    lines += ["", *(f"{md(line)}  " for line in notes(card)), "", "## Theory", ""]
    lines += [f"- **{md(row.rung)}** ({md(row.asks)}): {md(row.theory)}; {md(row.why)}." for row in card.rows]
    papers = [f"- **{md(rung)}**: {md(said)}." for rung, said in reported(card)]
    lines += ["", "## What papers report", "", *papers] if papers else []
    lines += ["", "## Next", "", *(f"- {md(line)}" for line in card.next), "", "## Commands", ""]
    commands = [(row.rung, _code(row.command), _code(again(row))) for row in card.rows if row.command]
    lines += [f"- {md(rung)}: {command}, and with its kernels {same}" for rung, command, same in commands]
    return "\n".join(lines) + "\n"


def _code(command: str) -> str:
    """Return a command as code, between more backticks than it has in a row."""
    fence = "`" * (1 + max((len(ticks) for ticks in re.findall("`+", command)), default=0))
    space = " " if len(fence) > 1 else ""
    return f"{fence}{space}{one_line(command)}{space}{fence}"


def title(card: Card) -> str:
    whole = "" if not card.missing else f" ({card.missing} still without all their seeds)"
    what = f"a part of {card.protocol}" if card.part else card.protocol
    lost = sum(row.outcome == "lost" for row in card.rows if row.n)
    others = card.run - card.held - lost
    outcomes = f"{card.held} held, {lost} learnt and lost, {others} not learnt"
    rungs = f"{len(card.rows)} rung{'' if len(card.rows) == 1 else 's'}"
    return f"{card.model} on {rungs} of {what}: {outcomes}{whole}"


def facts(card: Card) -> list[str]:
    moves = TRANSITIONS.get(card.transition, card.transition) or "not declared"
    cost = [f"{card.parameters:,} parameters" if card.parameters else ""]
    cost.append(f"{card.state_bytes:,} bytes of state at length 256" if card.state_bytes else "no step form")
    cost.append(f"{card.tokens_per_s:,.0f} tokens a second in training here" if card.tokens_per_s else "")
    cost.append(f"{card.decoded_per_s:,.0f} in decoding" if card.decoded_per_s else "")
    cost.append(f"{card.hours:.2f} hours for all runs")
    part = [f"{card.part}: not comparable with the reference rows"] if card.part else []
    scores = [f"{family} {family_text(score)}" for family, score in card.families.items()]
    families = [f"mean scaled accuracy at {card.longest}: {', '.join(scores)}"] if scores else []
    return [*part, f"its state moves: {moves}", *families, ", ".join(part for part in cost if part)]


def notes(card: Card) -> list[str]:
    held, lost, missed = MARKS.values()
    return [
        f"holds: seeds with scaled accuracy of 0.9 or more at lengths {card.longest}; {held} most hold it, {lost} most "
        "learn it and lose it,",
        f"{missed} most do not learn it; to 40, longest, {FURTHER}: the median over seeds at the lengths of training, "
        "there and at that",
        "length; learnt: the step at which most seeds were at 99 %; theory: can, cannot, open; °: unless TC0 = NC1.",
        *close(card),
    ]


def reported(card: Card) -> list[tuple[str, str]]:
    """Return the values of papers for this model by rung, each with whether ours agrees."""
    return [(row.rung, f"{report.word}; {report.text}") for row in card.rows for report in row.reports]


def close(card: Card) -> list[str]:
    """Return the explanation of the mark for close rungs, if any has it."""
    if not any(row.is_close for row in card.rows):
        return []
    return [
        f"{CLOSE}: the {card.strings} strings or so there do not say whether most seeds do (Wilson's intervals, 95 %)."
    ]


def columns(card: Card) -> list[str]:
    """Return the column heads of a card's table."""
    return [*HEADS, *card.beside, *([] if card.part else [OTHERS])]


def cells(card: Card, row: Row) -> Sequence[str]:
    learnt = "" if row.learnt_at is None else f"{row.learnt_at:,}"
    scores = [_score(value) for value in (row.in_training, row.at_longest, row.further)]
    holds = f"{MARKS[row.outcome]} {CLOSE if row.is_close else ''}{row.held}/{row.n}" if row.n else "-"
    best = [] if card.part else [", ".join(row.best)]
    return (row.rung, row.asks, holds, *scores, learnt, f"{row.sign} {row.theory}", *row.beside, *best)


def again(row: Row) -> str:
    """Return the command that repeats a rung's first run as it was recorded, and compares."""
    return f"ladder reproduce {row.run_ids[0]}"


def _score(value: float | None) -> str:
    return "" if value is None else f"{round(value, 2) + 0.0:.2f}"


def _clipped(name: str) -> str:
    return name if len(name) <= 16 else f"{name[:15]}…"
