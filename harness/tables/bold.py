"""The choice of bold cells: a task's leader, and the models it was not shown to beat (harness/stats/claims.py)."""

from collections.abc import Sequence

from chomsky_ladder.harness.stats.cell_stats import CellStats
from chomsky_ladder.harness.stats.claims import verdict


def allowed_bold(stats: Sequence[CellStats]) -> tuple[dict[str, tuple[str, ...]], tuple[str, ...]]:
    """Return the models in bold by task, and a sentence that says what bold means or why there is none."""
    of_task: dict[str, list[CellStats]] = {}
    for cell in stats:
        of_task.setdefault(cell.task, []).append(cell)
    verdicts = {task: verdict(rivals) for task, rivals in sorted(of_task.items())}
    bold = {task: found.bold for task, found in verdicts.items() if found.bold}
    if bold:
        return bold, (
            "Bold: a task's leader and those it was not shown to beat, where it was shown to beat any (permutation "
            "tests over seeds, p ≤ .05 each).",
        )
    reasons: dict[str, list[str]] = {}
    for task, found in verdicts.items():
        reasons.setdefault(found.reason, []).append(task)
    listed = "; ".join(f"{reason} ({', '.join(tasks)})" for reason, tasks in reasons.items())
    return {}, (f"Nothing may be bold: {listed}.",)
