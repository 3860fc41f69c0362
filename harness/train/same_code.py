"""Check that a plugin is still the code that a result or a checkpoint was made with, before that is used again.

    ladder: parity-rm-s0-4c2f81a09b was made with rm.py e6ea1c0d2f84, now e0f0a1b2c3d4: raise its version, or
    ladder clean parity-rm-s0-4c2f81a09b

Our own code is compared only if a checkout with uncommitted changes made the result. Otherwise versions and golden
values show when numbers change. If sessions of different commits worked on a run, its provenance lists them as
`sessions`, the oldest first.
"""

import inspect
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from chomsky_ladder.harness.config.origin import digest_of_file, origin
from chomsky_ladder.harness.config.run import Run
from chomsky_ladder.harness.store import checkpoint
from chomsky_ladder.harness.store.folder import RunFolder
from chomsky_ladder.harness.store.made_with import RAISE, sources_text
from chomsky_ladder.harness.train.machine import plugins_of, source_hash

_CODE = ("version", "commit", "dirty", "plugins", "sources")
_SHOWN = 3  # runs named in a message


def refuse_other_code(runs: Sequence[Run], results: Path) -> None:
    """Refuse runs whose result or checkpoint was made by plugins that have been edited since."""
    changed = []
    for run in runs:
        folder = RunFolder(results, run.run_id)
        if plugins_of(run.task, run.model) and folder.path.is_dir():
            made = _made_with(folder)
            said = made_otherwise(run, made)
            changed += [(run.run_id, said, _cure(run, made))] if said else []
    if changed:
        run_id, said, cure = changed[0]
        names = " ".join(name for name, *_ in changed[:_SHOWN]) + (" .." if changed[_SHOWN:] else "")
        more = f" (and {len(changed) - 1} more)" if changed[1:] else ""
        raise ValueError(f"{run_id}{more} was {said}: {cure}, or ladder clean {names}")


def _cure(run: Run, made: Mapping[str, Any]) -> str:
    """Return the advice for a plugin that was edited, or for another plugin of the same name."""
    theirs = made.get("plugins", {})
    others = [
        name for name, now in plugins_of(run.task, run.model).items() if _from(theirs, name) not in ("", now.called)
    ]
    return f"call that {others[0]} otherwise, name another results folder" if others else RAISE


def _from(plugins: Mapping[str, Any], name: str) -> str:
    return plugins.get(name, {}).get("from", "")


def _made_with(folder: RunFolder) -> Mapping[str, Any]:
    """Return the provenance of a folder's result, else the code of its newest checkpoint, else nothing."""
    result = folder.result()
    if result is not None:
        return result.get("provenance", {})
    return (code_of(checkpoint.newest(folder.path)) or [{}])[-1]


def sources_of(run: Run) -> str:
    """Return the column `sources` that a record of this run would have if it were made now."""
    plugins = plugins_of(run.task, run.model)
    return sources_text({name: {"from": made.called, "sha256": made.digest} for name, made in plugins.items()})


def refuse_checkpoint_of_other_code(run: Run, content: Mapping[str, Any]) -> None:
    """Refuse weights that other code made: an older plugin, or an edit of ours that was never committed."""
    said = made_otherwise(run, (code_of(content) or [{}])[-1])
    if said:
        step = content["counters"]["step"]
        raise ValueError(
            f"the checkpoint of {run.run_id} at step {step} was {said}: {RAISE}, or ladder clean {run.run_id}"
        )


def made_otherwise(run: Run, made: Mapping[str, Any]) -> str:
    """Return how the code of a run's task, model or kernels differs from a provenance; "" if it does not."""
    theirs, now = made.get("plugins", {}), plugins_of(run.task, run.model)
    for kind, part in (("model", run.model), ("task", run.task)):
        name, cls = f"{kind} {part.name}", type(part)
        here, then = now.get(name), theirs.get(name)
        if here is None and then is None:
            kept = made.get("sources", {}).get(cls.__name__, source_hash(cls))
            if made.get("dirty") is True and kept != source_hash(cls):
                return f"made with another {inspect.getfile(cls).rpartition('/')[2]}, which was not committed"
            continue
        if then is None:  # it was ours, or it is from when only the hash of a file was kept
            kept = made.get("sources", {}).get(cls.__name__)
            if "version" in made and origin(cls) is not None:
                assert here is not None
                return f"made with chomsky-ladder's own {part.name}, now with {here.short}"
            if here is not None and kept and kept != source_hash(cls):
                return f"made with {here.called} {kept} (that file alone), now {source_hash(cls)}"
        elif then["sha256"] != (here.digest if here is not None else digest_of_file(cls)):
            said = "with other code" if here is None else here.digest if here.called == then["from"] else here.short
            return f"made with {then['from']} {then['sha256']}, now {said}"
    for name in now.keys() & theirs.keys():
        if name.startswith("kernel ") and now[name].digest != theirs[name]["sha256"]:
            return f"made with {name} of {theirs[name]['from']} {theirs[name]['sha256']}, now {now[name].digest}"
    return ""


def code_of(content: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    """Return the code of a checkpoint's sessions, the newest last. The first checkpoints do not have it."""
    return list((content or {}).get("code", []))


def codes_of(provenance: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the code of sessions as a checkpoint keeps it: an entry for each change of code."""
    return provenance.get("sessions") or [{name: provenance[name] for name in _CODE if name in provenance}]


def with_earlier_code(provenance: dict[str, Any], content: Mapping[str, Any]) -> dict[str, Any]:
    """Return a provenance that also names the code of earlier sessions, if it was different."""
    mine, before = codes_of(provenance)[-1], code_of(content)
    if not before or before == [mine]:
        return provenance
    return {**provenance, "sessions": before if before[-1] == mine else [*before, mine]}
