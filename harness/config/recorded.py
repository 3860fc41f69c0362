"""Make a run again from its config, or from its line in records.csv alone.

    xlstm_cpu  word_problem  lstm  {"train.qat":4,"task.group":"S3"}  lr 0.01  seed 2
    ->  the preset of xlstm_cpu for word_problem and lstm, with train.qat 4, task.group S3, train.lr 0.01 and seed 2

The id hashes every setting, so it shows whether the run is the same. If it is not, the code has changed since, and
`NotTheRun` says where, as far as the record tells.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from chomsky_ladder.harness.config.parts import replaced
from chomsky_ladder.harness.config.protocols import WIDTHS, find_protocol, matched, preset_run
from chomsky_ladder.harness.config.registry import find_model, find_task, refuse_class
from chomsky_ladder.harness.config.run import Run
from chomsky_ladder.harness.store.labels import FILES, Identity
from chomsky_ladder.harness.store.record import Record


class NotTheRun(ValueError):
    """This code no longer makes the recorded run."""


def rebuilt(record: Record, config: Mapping[str, Any] | None = None) -> Run:
    """Return the run of a record, from its config if given. Raise NotTheRun if its id differs."""
    try:
        run = _of_record(record) if config is None else Run.from_plain(dict(config))
    except ValueError as error:
        plugin = "; if a plugin has it: --plugin FILE or MODULE:CLASS" if str(error).startswith("unknown ") else ""
        raise NotTheRun(f"this code cannot make {record.run_id} any more: {error}{plugin}") from None
    except (AttributeError, KeyError, TypeError):
        raise NotTheRun(f"the config.json of {record.run_id} is no run's") from None
    if run.run_id != record.run_id:
        made = f" (made at commit {record.commit[:12]})" if record.commit not in ("", "unknown") else ""
        raise NotTheRun(
            f"this code cannot make {record.run_id} any more: it comes out as {run.run_id}, since a default or the "
            f"preset {record.protocol_name} has changed, or the record has{made}"
        )
    return run


def _of_record(record: Record) -> Run:
    identity = Identity.of(record.model_dump())
    refuse_class(identity.model_name)
    by_part: dict[str, dict[str, Any]] = {part: {} for part in ("protocol", "train", "eval", "task", "model")}
    for name, value in identity.settings.items():
        part, _, setting = name.partition(".")
        if name in FILES:
            raise ValueError(f"it needs a file of strings (sha256 {value[:12]}) that records.csv does not hold")
        if part not in by_part or not setting:
            raise ValueError(f"it has a setting {name!r}, which no run has")
        by_part[part][setting] = value
    _refuse_other_versions(identity, by_part)
    preset = preset_run(identity.task_name, identity.model_name, protocol=identity.protocol_name, seed=record.seed)
    rate = {"lr": record.lr, "lr_final": min(record.lr, preset.train.lr_final)}
    changes = by_part["model"]
    widths = {name: changes.pop(name) for name in WIDTHS if name in changes}
    model = matched(replaced(preset.model, changes, where="model"), find_protocol(identity.protocol_name))
    return replace(
        preset,
        task=replaced(preset.task, by_part["task"], where="task"),
        model=replaced(model, widths, where="model"),
        train=replaced(preset.train, rate | by_part["train"], where="train"),
        eval=replaced(preset.eval, by_part["eval"], where="eval"),
    )


def _refuse_other_versions(identity: Identity, by_part: dict[str, dict[str, Any]]) -> None:
    """Refuse a record of other versions than ours. A version that is not named is 1."""
    named = {
        "protocol": find_protocol(identity.protocol_name),
        "task": find_task(identity.task_name),
        "model": find_model(identity.model_name),
    }
    for part, found in named.items():
        made = by_part[part].pop("version", 1)
        if made != found.version:
            name = identity.protocol_name if part == "protocol" else found.name
            raise ValueError(f"it was made with version {made} of {name}, which is version {found.version} here")
    if by_part["protocol"]:
        raise ValueError(f"it has a setting 'protocol.{min(by_part['protocol'])}', which no run has")
