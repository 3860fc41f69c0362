"""Draw the few pictures that README and docs show, small enough for the repository.

`scripts/publish.py --release` calls this. A picture is drawn from the records, or from the numbers that `ladder
horizon`, scripts/othello.py and scripts/rounding.py left under results/. It is then reduced to a width of 1,200 pixels
and 128 colours.
"""

import io
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from PIL import Image

from chomsky_ladder.harness.figures import write as figures
from chomsky_ladder.harness.figures.style import save, style
from chomsky_ladder.harness.inside import draw_horizon, draw_layers, draw_rounding
from chomsky_ladder.harness.stats.view import training_lengths
from chomsky_ladder.harness.store.files import write_atomically
from chomsky_ladder.harness.store.labels import Identity
from chomsky_ladder.harness.store.record import stored
from chomsky_ladder.harness.tables import write as tables
from chomsky_ladder.harness.tables.published import published

CLIMB = "climb-v1"
HIGHEST = 8  # models of the climb that are drawn beside those of the xLSTM paper
WIDTH, COLOURS, MOST_KB = 1200, 128, 150


def write(results: Path, folder: Path) -> Iterator[Path]:
    """Write the pictures. Yield the file of each."""
    records = stored(results / "records.csv")
    records = records[records["protocol"] == CLIMB]
    rows = tables.table(records, "climb").data["model"].drop_duplicates()  # the highest first
    shown = [*rows[:HIGHEST], *published("xlstm").models]
    yield _written(_drawn(records, "climb", models=shown), folder / "climb.png")
    yield _written(_drawn(records, "corner"), folder / "corner.png")
    with tempfile.TemporaryDirectory() as scratch:
        horizon, layers = Path(scratch) / "compare_ends.png", Path(scratch) / "error_by_layer"
        orbits = Path(scratch) / "orbits.png"
        draw_rounding.draw(pd.read_csv(results / "rounding" / "orbits.csv"), orbits)
        draw_horizon.draw(_readings(results / "horizon" / "compare_ends.csv", records), horizon)
        edits = pd.read_csv(results / "othello/figures/cpu/error_by_layer.csv", keep_default_na=False, na_values=[""])
        with style():
            save(draw_layers.interventions(edits), edits, layers, kinds=("png",))
        for path in (horizon, layers.with_suffix(".png"), orbits):
            yield _written(Image.open(path).convert("RGB"), folder / path.name)


def _readings(file: Path, records: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the readings of `ladder horizon` as it draws them, the models by the records of their runs."""
    models = records.set_index("run_id")["model"]
    (_, trained_to), found = training_lengths(Identity.of(records.iloc[0])) or (0, 0), []
    for run_id, rows in pd.read_csv(file).groupby("run_id", sort=False):
        first = rows.iloc[0]
        about: dict[str, Any] = {"run_id": run_id, "model": models[run_id], "trained_to": trained_to}
        about |= {
            name: int(first[name]) for name in ("step", "state_bytes", "holds_to", "finite_to", "without_mistake")
        }
        about |= {"provenance": {"commit": first["commit"], "packages": {"torch": first["torch"]}}}
        about |= {"numerics": {"device": first["device"]}, "length": int(rows["to"].max())}
        bins = rows[["from", "to", "answers", "accuracy", "scaled", "commonest"]].to_dict("records")
        found.append(about | {"bins": bins})
    return found


def _drawn(records: pd.DataFrame, name: str, *, models: Sequence[str] = ()) -> Image.Image:
    """Draw one figure of the climb, of some models or of all."""
    with tempfile.TemporaryDirectory() as scratch:
        how: Any = {"protocol": CLIMB, "models": models or None, "names": [name], "kinds": ("png",)}
        paths = figures.write(records, Path(scratch), tell=lambda line: None, **how)
        (path,) = [path for path in paths if path.suffix == ".png"]
        return Image.open(io.BytesIO(path.read_bytes())).convert("RGB")


def _written(picture: Image.Image, path: Path) -> Path:
    if picture.width > WIDTH:
        picture = picture.resize((WIDTH, round(picture.height * WIDTH / picture.width)), Image.Resampling.LANCZOS)
    content = io.BytesIO()
    few = picture.quantize(COLOURS, method=Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)  # keeps rare colours
    few.save(content, "png", optimize=True)
    size = len(content.getvalue()) / 1000
    if size > MOST_KB:
        raise ValueError(f"{path.name} would have {size:.0f} KB, more than the {MOST_KB} a picture may have here")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, content.getvalue())
    return path
