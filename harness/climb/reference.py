"""The reference results in an installed package: what a report card needs of every published run of a climb.

    reference.csv.bz2       records.csv, compressed, with these columns; of test_bins the longest lengths alone

scripts/publish.py writes it from results/records.csv. A clone reads records.csv instead.
"""

import bz2
import csv
import io
import json
from pathlib import Path

from chomsky_ladder.harness.config.presets import PROTOCOLS, has_rungs
from chomsky_ladder.harness.stats.climb import longest
from chomsky_ladder.harness.store import records_file
from chomsky_ladder.harness.store.files import write_atomically

FILE = Path(__file__).with_name("reference.csv.bz2")
COLUMNS = (
    *("run_id", "protocol", "task", "level", "model", "protocol_name", "task_name", "model_name", "settings"),
    *("transition", "demand", "lr", "seed", "status", "steps", "tokens_per_step", "steps_to_99"),
    *("parameters", "state_bytes", "s_rand", "test", "test_scaled", "test_bins", "extrapolation"),
    *("validation", "in_distribution", "train_seconds", "score_seconds"),
)


def lines_of(records: Path) -> bytes:
    """Return the lines of a records.csv that belong to climbs, with the columns that are packaged."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    for row in records_file.rows(records):
        if has_rungs(row["protocol"]):
            where = longest(PROTOCOLS[row["protocol"]])
            bins = {name: score for name, score in json.loads(row["test_bins"] or "{}").items() if name == where}
            writer.writerow(row | {"test_bins": json.dumps(bins, separators=(",", ":"))})
    return text.getvalue().encode()


def is_of(records: Path) -> bool:
    """Return True if the packaged lines are those of a records.csv."""
    return FILE.exists() and bz2.decompress(FILE.read_bytes()) == lines_of(records)


def write(records: Path) -> None:
    """Compress the lines of a records.csv, if they have changed."""
    if not is_of(records):
        write_atomically(FILE, bz2.compress(lines_of(records)))
