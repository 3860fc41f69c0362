"""A report card as one HTML file that needs no network, and its picture."""

import base64
from html import escape
from pathlib import Path

import pandas as pd

from chomsky_ladder.harness.climb.card import Card, Row
from chomsky_ladder.harness.climb.text import again, cells, columns, facts, notes, reported, title

STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; color: #1a1a1a; max-width: 62rem; margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.5rem } h2 { font-size: 1.1rem; margin-top: 2rem } p.facts { color: #5c5c5c; margin: .2rem 0 }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums } img { max-width: 100% }
th, td { padding: .28rem .5rem; text-align: right; border-bottom: 1px solid #e4e4e4; white-space: nowrap }
th:first-child, td:first-child, th:nth-child(2), td:nth-child(2), td:last-child, th:last-child { text-align: left }
td:last-child { white-space: normal; color: #5c5c5c } td:nth-child(2) { color: #5c5c5c }
tr.gap td:nth-child(3) { background: #fbeed2 } tr.odd td:nth-child(3) { background: #f5e1ec }
tr.held td:nth-child(3) { background: #dcebf5; font-weight: 600 } code { font-size: .85em; white-space: pre-wrap }
"""
CLASSES = {"can, not held": "gap", "cannot, yet held": "odd", "can, held": "held", "open": ""}


def html(card: Card, picture: bytes | None) -> str:
    """Return the whole file, with the picture inside."""
    heads = "".join(f"<th>{escape(head)}</th>" for head in columns(card))
    body = "\n".join(_row(card, row) for row in reversed(card.rows))
    image = base64.b64encode(picture).decode() if picture else ""
    figure = f'<p><img alt="{escape(title(card))}" src="data:image/png;base64,{image}"></p>' if image else ""
    theory = "".join(
        f"<li><b>{escape(row.rung)}</b> ({escape(row.asks)}): {row.theory}; {escape(row.why)}.</li>"
        for row in card.rows
    )
    papers = "".join(f"<li><b>{escape(rung)}</b>: {escape(said)}.</li>" for rung, said in reported(card))
    papers = f"<h2>What papers report</h2><ul>{papers}</ul>" if papers else ""
    commands = "".join(
        f"<li>{escape(row.rung)}: <code>{escape(row.command)}</code>, "
        f"and with its kernels <code>{escape(again(row))}</code></li>"
        for row in card.rows
        if row.command
    )
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{escape(title(card))}</title><style>{STYLE}</style></head><body>
<h1>{escape(title(card))}</h1>
{"".join(f'<p class="facts">{escape(line)}</p>' for line in facts(card))}
<table><thead><tr>{heads}</tr></thead><tbody>
{body}
</tbody></table>
<p class="facts">{escape(" ".join(notes(card)))}</p>
{figure}
<h2>Next</h2><ul>{"".join(f"<li>{escape(line)}</li>" for line in card.next)}</ul>
<h2>Theory</h2><ul>{theory}</ul>
{papers}
<h2>Commands</h2><ul>{commands}</ul>
</body></html>
"""


def draw(card: Card, records: pd.DataFrame, stem: Path) -> bytes | None:
    """Draw the model and those beside it, as PNG, SVG and CSV. Return None if nothing was run."""
    from chomsky_ladder.harness.figures.kinds import climb  # imports matplotlib
    from chomsky_ladder.harness.figures.plot import Scene
    from chomsky_ladder.harness.figures.style import save, style
    from chomsky_ladder.harness.stats.looks import looks
    from chomsky_ladder.harness.stats.view import cells_of

    models = [card.model, *card.beside]
    shown = records[(records["protocol"] == card.protocol) & records["model"].isin(models)]
    if shown.empty:
        return None
    scene = Scene(cells_of(shown), None, looks(models))
    data = climb.climb(scene)
    with style():
        save(climb.draw(data, scene), data, stem)
    return stem.with_name(f"{stem.name}.png").read_bytes()


def _row(card: Card, row: Row) -> str:
    kind = CLASSES.get(row.meeting, "") or ("held" if 2 * row.held > row.n > 0 else "")
    line = "".join(f"<td>{escape(cell)}</td>" for cell in cells(card, row))
    return f'<tr class="{kind}" title="{escape(row.why)}">{line}</tr>'
