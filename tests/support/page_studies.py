"""Studies beside a page, made by hand: of a board game, and a machine's report of throughput; titles are hostile."""

import json
from pathlib import Path

import pandas as pd

from chomsky_ladder.harness.figures.names import PICTURES

HOSTILE = "<script>alert(1)</script>"
SIDES = ("before", "after")


def world(results: Path, name: str, *, game: str = "othello") -> Path:
    """One with a table, a line by layer, a game of two plies on four squares and an edit; its titles are hostile."""
    folder, man = results / game, " king" if game == "chess" else ""
    drawn = folder / "figures" / name
    (drawn / "run").mkdir(parents=True)
    titles = {"run/game_every_ply": f"lstm {HOSTILE}: a game", "run/flip": "lstm: an edit", "run/game": "lstm: a game"}
    listed = [{"title": title, "picture": picture} for picture, title in titles.items()]
    (drawn / PICTURES).write_text(json.dumps(listed))
    about = {"run_id": "run", "layer": 1, "probe": "linear", "move": "a1", "player": "black", "mover": "white"}
    black, white = f"black{man}", f"white{man}"
    squares = [("a1", black, black), ("b1", white, black), ("a2", "empty", "empty"), ("b2", "empty", white)]
    plies = [
        {**about, "ply": ply, "square": name, "true": true, "probed": probed, "confidence": 0.987, "legal": True}
        | {"probability": 0.25}
        for ply in (1, 2)
        for name, true, probed in squares
    ]
    pd.DataFrame(plies).to_csv(drawn / "run" / "game_every_ply.csv", index=False)
    sides = {f"{part}_{side}": value for part, value in (("legal", False), ("probability", 0.5)) for side in SIDES}
    edit = {"run_id": "run", "case": 0, "ply": 5, "mover": "black", "edited": "a1", "from": black, "to": white}
    rows = [{**edit, "square": name, "board_before": a, "board_after": b, **sides} for name, a, b in squares]
    pd.DataFrame(rows).to_csv(drawn / "run" / "flip.csv", index=False)
    layers = pd.DataFrame([{"model": "lstm", "edit": "flip", "kind": "null", "layer": "", "mean": 3.5, "se": 0.1}])
    layers.assign(chosen=True).to_csv(drawn / "error_by_layer.csv", index=False)
    (folder / "tables").mkdir(exist_ok=True)
    lines = ["| | floor | lstm |", "| --- | --- | --- |", "| top-1 | 0.1 | 0.2 |", "", f"lstm: {HOSTILE}", "  yes"]
    (folder / "tables" / f"{name}.md").write_text("\n".join(lines))
    return results


def throughput(folder: Path) -> Path:
    """Write a machine's report: two models at two lengths, a row of another path, and one that was not run."""
    (folder / "cpu").mkdir(parents=True)
    time = {"ms": 2.0, "ms_p20": 1.5, "ms_p80": 3.0, "precision": "fp32", "way": "auto"}
    rows: list[dict[str, object]] = [
        {**time, "model": model, "match": match, "what": what, "length": length, "batch": 1, "state_bytes": 640}
        | {"tokens_per_s": speed * (2 if what == "decode" else 1) + length, "peak_bytes": 1000 * length}
        for match in ("parameters", "state")
        for model, speed in (("lstm", 80_000.234), ("mamba", 20_000))
        for what in ("train", "prefill", "decode")
        for length in (256, 1024)
    ]
    rows += [{**rows[0], "way": "reference"}, {"model": "lstm", "not_run": "too long"}]
    about = {"device": f"a machine {HOSTILE}", "torch": "2.13", "clock": "process time", "provenance": {"commit": "c"}}
    (folder / "cpu" / "report.json").write_text(
        json.dumps({**about, "grid": {"parameters": 100_000, "state_bytes": 4096}, "rows": rows})
    )
    return folder
