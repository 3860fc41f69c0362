"""The description of a run for a tracker, and how the run ended, both from its folder."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from chomsky_ladder.harness.store.files import read_json
from chomsky_ladder.harness.store.folder import RunFolder

if TYPE_CHECKING:
    from chomsky_ladder.harness.config.run import Run


@dataclass(frozen=True, kw_only=True)
class Card:
    """The description of a run before its first step."""

    run_id: str
    name: str
    tags: tuple[str, ...]
    config: dict[str, Any]
    """The canonical tree, the labels by which tables find the run, and its provenance."""
    group: str = ""
    """The sweep's name."""

    @classmethod
    def of(cls, run: "Run", provenance: dict[str, Any], *, group: str = "") -> "Card":
        from chomsky_ladder.harness.config.protocols import columns_of  # imports torch

        return cls._made(run.run_id, run.plain(), columns_of(run), provenance, family=run.model.family, group=group)

    @classmethod
    def read(cls, folder: RunFolder, *, group: str = "") -> "Card":
        """Return the card of a run. If its code has changed, it has no family, and an unfinished run no labels."""
        from chomsky_ladder.harness.config.protocols import columns_of
        from chomsky_ladder.harness.config.run import Run  # imports torch

        tree, end = folder.config(), end_of(folder) or {}
        try:
            run = Run.from_plain(tree)
            named, family = columns_of(run), run.model.family
        except ValueError:
            named, family = {}, ""
        return cls._made(folder.path.name, tree, {**named, **end}, end.get("provenance"), family=family, group=group)

    @classmethod
    def _made(
        cls,
        run_id: str,
        tree: dict[str, Any],
        labels: dict[str, Any],
        provenance: dict[str, Any] | None,
        *,
        family: str,
        group: str,
    ) -> "Card":
        task, model = tree["task"]["name"], tree["model"]["name"]
        named = {f"{key}_label": labels[key] for key in ("protocol", "task", "model") if key in labels}
        config = {**tree, **named, "provenance": provenance}
        tags = [tag[:64] for tag in (labels.get("level"), family, tree["protocol"]) if tag]  # at most 64 in W&B
        name = f"{task}-{model}-{tree['seed']}"
        return cls(run_id=run_id, name=name, tags=tuple(dict.fromkeys(tags)), config=config, group=group)


def end_of(folder: RunFolder) -> dict[str, Any] | None:
    """Return the record of a run that has one, in any status."""
    for name, status in (("result", "done"), ("failure", "failed"), ("preempted", "preempted")):
        end = read_json(folder.path / f"{name}.json")
        if end is not None:
            return {"status": status, **end}
    return None


def line(error: BaseException) -> str:
    """Return an error as one readable line."""
    said = " ".join(str(error).split())[:300]
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


def plain(value: Any) -> Any:
    """Return a tree without the counts behind a score, and without dots in keys, at which trackers split them."""
    if not isinstance(value, dict):
        return value
    return {key.replace("..", "-").replace(".", "_"): plain(v) for key, v in value.items() if key != "counts"}
