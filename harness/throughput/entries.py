"""The entries of throughput tables: a median with its percentiles below, or the reason why there is none."""

from collections.abc import Sequence

from chomsky_ladder.harness.tables.sheets import DASH, Entry
from chomsky_ladder.harness.throughput.bench import Row


def listed(lengths: Sequence[int]) -> str:
    return ", ".join(f"{length:,}" for length in lengths)


def missing(row: Row | None) -> Entry:
    why = (row or {}).get("not_run") or "-"
    return Entry((why.split(":")[0],))


def digits(value: float) -> str:
    """Return a number with three significant digits."""
    if value >= 100 or value == 0:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}" if value >= 1 else f"{value:.3f}"


def between(row: Row, stem: str) -> str:
    return f"{digits(row[f'{stem}_p20'])}..{digits(row[f'{stem}_p80'])}"


def timed(row: Row | None, stem: str = "") -> Entry:
    if row is None or row.get(f"{stem}ms") is None:
        return missing(row)
    return Entry((digits(row[f"{stem}ms"]), between(row, f"{stem}ms")))


def rate(row: Row | None) -> Entry:
    if row is None or row.get("tokens_per_s") is None:
        return missing(row)
    low, high = (row["tokens_per_s"] * row["ms"] / row[f"ms_{end}"] for end in ("p80", "p20"))
    return Entry((digits(row["tokens_per_s"]), f"{digits(low)}..{digits(high)}"))


def number(row: Row | None, key: str, *, scale: float = 1.0, form: str = "") -> Entry:
    if row is None or row.get(key) is None:
        return missing(row)
    value = row[key] * scale
    return Entry((format(value, form) if form else digits(value),))


def integer(value: int | None) -> Entry:
    return DASH if value is None else Entry((f"{value:,}",))


def quotient(row: Row | None, key: str, below: str) -> Entry:
    if row is None or not row.get(key) or not row.get(below):
        return missing(row)
    return Entry((f"{row[key] / row[below]:.2f}",))


def share(row: Row | None, key: str, top: float) -> Entry:
    if row is None or row.get(key) is None:
        return missing(row)
    return Entry((digits(row[key]), f"{100 * row[key] / top:.1f} %"))
