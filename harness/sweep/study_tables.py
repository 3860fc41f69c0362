"""The output of a finished study: every table and figure of the folder, and its own cells as text."""

from collections.abc import Callable, Sequence
from pathlib import Path

from chomsky_ladder.harness.config.run import Run


def published_tables(kind: str, *, against: str | None = None) -> Callable[[Sequence[Run], Path], str]:
    """Return a function that rewrites all tables and figures and returns one kind of the study's own cells."""

    def write(runs: Sequence[Run], results: Path) -> str:
        from chomsky_ladder.harness.config.protocols import identity_of
        from chomsky_ladder.harness.figures import write as figures
        from chomsky_ladder.harness.store import curves
        from chomsky_ladder.harness.store.record import collect
        from chomsky_ladder.harness.tables import write as tables

        records = collect(results)
        tables.write_all(results, against=[against] if against else [])
        figures.write(records, results / "figures", curves=curves.collect(results), tell=lambda line: None)
        named = {tuple(identity_of(run).labels().values()) for run in runs}
        own = [tuple(row) in named for row in records[["protocol", "task", "model"]].itertuples(index=False)]
        return tables.text(tables.table(records[own], kind, against=against), "markdown")

    return write


def beside_published(kind: str, *, protocol: str) -> Callable[[Sequence[Run], Path], str]:
    """Return a function that returns a kind of table of a folder's records of a protocol and the published ones."""

    def write(runs: Sequence[Run], results: Path) -> str:
        import pandas as pd

        from chomsky_ladder.harness.store.places import published_results
        from chomsky_ladder.harness.store.record import collect, stored
        from chomsky_ladder.harness.tables import write as tables

        records, published = collect(results), published_results()
        if published is not None:
            others = stored(published / "records.csv")
            records = pd.concat([records, others[others["protocol"] == protocol]]).drop_duplicates("run_id")
        return tables.text(tables.table(records, kind), "markdown")

    return write
