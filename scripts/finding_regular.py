"""Numbers on the page about C-RASP: the study of nine regular languages, as far as it has run."""

from collections.abc import Sequence

from finding_parts import Shown, as_table, cells_of_study, escaped, shell

from chomsky_ladder.harness.stats.view import Cell
from chomsky_ladder.harness.sweep.studies import c_rasp


def regular(shown: Shown) -> str:
    """List how well each model keeps each language of the study `c_rasp`, and the mean of each class."""
    cells = cells_of_study(c_rasp.runs("cpu"))
    by_place = {(cell.stats.title, cell.stats.identity.of_task()["pattern"]): cell for cell in cells}
    titles = list(dict.fromkeys(cell.stats.title for cell in cells))
    rows = []
    for title in titles:
        row = [escaped(title)]
        for languages in c_rasp.LANGUAGES.values():
            found = [by_place[title, c_rasp.apart(one)] for one in languages]
            row += [*map(_said, found), f"**{sum(map(_mean, found)) / len(found):.2f}**"]
        rows.append(row)
    head = ["model"]
    for kind, languages in c_rasp.LANGUAGES.items():
        head += [*(f"`{one}`".replace("|", "\\|") for one in languages), f"mean, {kind}"]
    runs = [run for cell in cells for run in cell.tried]
    seeds, rates, steps = (sorted({run[name] for run in runs}) for name in ("seed", "lr", "steps"))
    scope = (
        "Scaled accuracy at lengths 40 to 256, one number a seed, at the better of two learning rates by validation. "
    )
    scope += (
        f"Scope: settings of `xlstm_cpu` with every prefix labelled; {steps[-1]:,} steps of 32 strings of length 3 to "
    )
    scope += f"40; seeds {', '.join(map(str, seeds))}; learning rates {', '.join(f'{rate:g}' for rate in rates)}."
    return "\n\n".join([as_table(head, rows), scope, shell(["ladder study c_rasp    # two hours of a core"])])


def _scores(cell: Cell) -> Sequence[float]:
    return [run["test_scaled"] for run in cell.runs]


def _said(cell: Cell) -> str:
    return " ".join(f"{round(score, 2) + 0.0:.2f}" for score in _scores(cell))


def _mean(cell: Cell) -> float:
    return sum(_scores(cell)) / len(_scores(cell))
