"""Train some cells of a submission again, and score them on strings that nobody could know.

same bits, or the same within numerics     the record is what this code and this seed make
hidden strings                             the accuracy is not an accident of the published strings
"""

import math
import random
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from chomsky_ladder.harness.config.recorded import rebuilt
from chomsky_ladder.harness.stats.climb import climbs_of
from chomsky_ladder.harness.store.files import read_json
from chomsky_ladder.harness.store.folder import RunFolder
from chomsky_ladder.harness.store.record import Record, recorded, stored
from chomsky_ladder.harness.submit.checks import Check
from chomsky_ladder.harness.submit.manifest import Manifest
from chomsky_ladder.harness.submit.received import RETRAINED
from chomsky_ladder.harness.train.build import restored
from chomsky_ladder.harness.train.evaluate import Evaluator
from chomsky_ladder.harness.train.machine import find_device
from chomsky_ladder.harness.train.reproduce import again, settings_of

DEVIATIONS, ALLOWANCE = 4.0, 0.01  # of two samples of strings, and beside them


@dataclass(frozen=True)
class Drawn:
    rung: str
    record: Record

    @property
    def seconds(self) -> float:
        """The time that the submitter's machine took."""
        return (self.record.train_seconds or 0.0) + (self.record.score_seconds or 0.0)


def drawn(folder: Path, manifest: Manifest, count: int, seed: int) -> list[Drawn]:
    """Draw so many rungs, and of each one reported run at the learning rate that was chosen."""
    lines = recorded(folder / "records.csv")
    (climb,) = climbs_of(stored(folder / "records.csv"), manifest.protocol)
    cells = [(step.rung.name, step.cell.runs) for step in climb.steps if step.cell and step.cell.runs]
    chance = random.Random(seed)
    chosen = sorted(chance.sample(range(len(cells)), min(count, len(cells))))
    return [Drawn(rung, lines[str(chance.choice(runs)["run_id"])]) for rung, runs in map(cells.__getitem__, chosen)]


def retrained(folder: Path, one: Drawn, *, hidden: int, device: str) -> list[Check]:
    """Train a drawn run again; return how it compares with its record, and its score on hidden strings."""
    record = one.record
    run = rebuilt(record, read_json(folder / "runs" / record.run_id / "config.json"))
    with TemporaryDirectory(prefix="ladder-verify-") as place:
        settings = settings_of(record, folder, results=Path(place), device=device)
        found = again(record, run, folder, settings, quiet=True)
        _, model, _ = restored(RunFolder(Path(place), run.run_id))
        where = find_device(device)
        others = replace(run, eval=replace(run.eval, seed=hidden))
        score = Evaluator(others, model.to(where), device=where, backend="auto").test()
    equal = found.numbers - len(found.unequal)
    cell = f"{one.rung}, seed {record.seed}"
    said = f"{cell}: {found.verdict}, {equal} of {found.numbers} numbers to the last bit"
    accuracy = score.accuracy(score=run.eval.score)
    assert accuracy is not None and record.test is not None
    most = bound(record.test, run.eval.test)
    return [
        Check(RETRAINED, found.verdict != "differs", said),
        Check(
            "hidden strings",
            abs(accuracy - record.test) <= most,
            f"{cell}: accuracy {accuracy:.3f}, recorded {record.test:.3f}, may differ by {most:.3f}",
        ),
    ]


def bound(accuracy: float, strings: int) -> float:
    """Return how far two samples of strings may lie apart, by chance and a small allowance."""
    return DEVIATIONS * math.sqrt(2 * accuracy * (1 - accuracy) / strings) + ALLOWANCE
