"""A run's whole identity in one frozen tree. How it is executed is another tree and no part of it.

    run = Run(task=Parity(), model=LSTMConfig(d_model=64), train=Train(steps=500, lr=1e-2), eval=Eval(), seed=0)
    run.run_id  ->  'parity-lstm-s0-4c2f81a09b'

`run_id` hashes the canonical JSON of the tree with the versions of the task, the model and this schema. So equal
settings are one run on any machine, and a changed task is another run.
"""

import hashlib
import json
import math
from copy import copy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from chomsky_ladder.harness.config.frozen import open_frozen
from chomsky_ladder.harness.config.origin import load_words
from chomsky_ladder.harness.config.parts import (
    check_types,
    checked,
    default_settings,
    from_plain,
    plain,
    refuse_endless,
    refuse_outside,
    require,
)
from chomsky_ladder.harness.config.presets import PROTOCOLS
from chomsky_ladder.harness.config.registry import find_model, find_task, refuse_class, refuse_missing
from chomsky_ladder.harness.config.rooms import did_you_mean
from chomsky_ladder.models.base import ModelConfig
from chomsky_ladder.tasks.base import LEVELS, Task

SCHEMA = 1


@dataclass(frozen=True, kw_only=True)
class Train:
    """Settings of training. Every step draws new strings, unless the training set is finite."""

    steps: int = 20_000
    """Optimiser steps."""
    batch: int = 256
    """Strings in a step."""
    lengths: tuple[int, int] = (3, 40)
    """Shortest and longest training string, as the task counts lengths; legal lengths between are equally likely."""
    examples: int = 0
    """Strings of a finite training set, seen in epochs of new order; 0 for endless strings."""
    lengths_per: Literal["sequence", "batch"] = "sequence"
    """sequence: every string has its own length. batch: all strings of a step share one."""
    curriculum: tuple[int, ...] = ()
    """Longest lengths of successive, equally long stages; empty for one fixed length."""
    lr: float = 1e-3
    """Peak learning rate."""
    schedule: Literal["cosine", "constant"] = "cosine"
    """The learning rate after the warm-up: cosine falls to `lr_final`, constant stays."""
    lr_final: float = 1e-5
    """Learning rate at the last step of a cosine."""
    warmup: float = 0.1
    """Share of the steps in which the learning rate rises linearly from 0."""
    betas: tuple[float, float] = (0.9, 0.99)
    """Beta1 and beta2 of AdamW."""
    eps: float = 1e-8
    """Epsilon of AdamW."""
    weight_decay: float = 0.1
    """Weight decay of AdamW, on the parameters that `decayed` names."""
    decayed: Literal["matrices", "all_but_embedding"] = "matrices"
    """matrices: decay matrices except embeddings and those that a model declares. all_but_embedding: decay all others,
    too."""
    clip: float = 1.0
    """Largest norm of the whole gradient; 0 for no clipping."""
    precision: Literal["fp32", "bf16", "fp64"] = "fp32"
    """bf16 is autocast over fp32 weights."""
    loss_over: Literal["answers", "slots"] = "answers"
    """answers: train answers only. slots: train every answer slot, those after the last with the task's filler."""
    next_symbol: float = 0.0
    """Weight of a further loss on the next symbol (or the end) of strings in the language; 0 for none."""
    next_set: float = 0.0
    """Weight of a further loss on the set of symbols that may come next in the language; 0 for none."""
    cut: int = 0
    """Positions after which the gradient ends and only the state goes on (truncated backpropagation); 0 for whole
    strings."""
    passed: int = 0
    """Strings that each row reads first, without a gradient (state passing). It starts from the state that they leave;
    0 for a fresh state."""
    qat: Literal[0, 2, 4, 8] = 0
    """Bits that weight matrices are rounded to, in training and scoring; 0 for no rounding."""
    stop_after: int = 0
    """Stop after this many perfect validations in a row; 0 for never."""
    stop_above: float = 1.0
    """Validation accuracy that counts as perfect; 1 for no error."""
    base: str = ""
    """Id of a finished run whose weights are frozen and adapted by low-rank factors."""
    lora_rank: int = 0
    """Rank of the factors beside each adapted matrix; 0 without a base."""
    lora_layers: str = "*"
    """Names of the adapted matrices, as patterns separated by commas: blocks.0.*,*.weight_hh"""
    lora_ends: Literal["new", "keep"] = "new"
    """new: learn embedding and head anew. keep: use those of the base run, which needs the same tokens."""

    def __post_init__(self) -> None:
        check_types(self, "train")
        for name in ("steps", "batch"):
            refuse_outside(getattr(self, name), what=f"train.{name}")
        require(0 <= self.examples < 2**31, f"train.examples must be in 0..2**31-1, not {self.examples}")
        own_length = not self.examples or self.lengths_per == "sequence"
        require(own_length, "train.examples fixes every string's length: train.lengths_per must be sequence")
        require(1 <= self.lengths[0] <= self.lengths[1], f"train.lengths must rise from 1, not {self.lengths}")
        refuse_endless(self.lengths[1], what="train.lengths")
        refuse_endless(max(self.curriculum, default=0), what="train.curriculum")
        require(all(high >= self.lengths[0] for high in self.curriculum), "train.curriculum goes below train.lengths")
        require(len(self.curriculum) <= self.steps, "train.curriculum has more stages than train.steps")
        require(0 < self.lr < math.inf, f"train.lr must be positive, not {self.lr}")
        require(0 <= self.lr_final < math.inf, f"train.lr_final must not be negative: {self.lr_final}")
        require(0 <= self.warmup <= 1, f"train.warmup is a share of the steps, not {self.warmup}")
        require(all(0 <= beta < 1 for beta in self.betas), f"train.betas must lie in [0, 1), not {self.betas}")
        require(0 < self.eps < math.inf, f"train.eps must be positive, not {self.eps}")
        require(0 <= self.weight_decay < math.inf, f"train.weight_decay must not be negative: {self.weight_decay}")
        require(0 <= self.clip < math.inf, f"train.clip must not be negative: {self.clip}")
        for name in ("next_symbol", "next_set"):
            weight = getattr(self, name)
            require(0 <= weight < math.inf, f"train.{name} is a weight, not negative: {weight}")
        require(self.cut >= 0, f"train.cut must not be negative: {self.cut}")
        require(0 <= self.passed <= 64, f"train.passed must lie in 0..64, not {self.passed}")
        apart = not (self.carries_state and self.asks_what_follows)
        require(apart, "train.next_symbol and next_set read whole strings: train.cut and passed must be 0")
        require(self.stop_after >= 0, f"train.stop_after must not be negative: {self.stop_after}")
        require(self.lora_rank >= 0, f"train.lora_rank must not be negative: {self.lora_rank}")
        require(bool(self.base) == (self.lora_rank > 0), "train.base and train.lora_rank need each other")
        require(not (self.base and self.qat), "train.qat rounds no adapted weights; its base run may have it")
        require(0 < self.stop_above <= 1, f"train.stop_above must lie in (0, 1], not {self.stop_above}")
        falls = self.schedule == "constant" or self.lr_final <= self.lr
        require(falls, f"train.lr_final={self.lr_final} lies above train.lr={self.lr}")

    @property
    def carries_state(self) -> bool:
        """Return True if strings are read in pieces, with the state carried on."""
        return self.cut > 0 or self.passed > 0

    @property
    def asks_what_follows(self) -> bool:
        """Return True if the run also trains on what comes next."""
        return self.next_symbol > 0 or self.next_set > 0

    def longest(self, step: int) -> int:
        """Return the longest string length of a step. A curriculum decides it, if there is one."""
        if not self.curriculum:
            return self.lengths[1]
        return self.curriculum[step * len(self.curriculum) // self.steps]


@dataclass(frozen=True, kw_only=True)
class Eval:
    """Settings of scoring. The strings depend on the task and this seed alone, and are the same for every model."""

    seed: int = 0
    """Seed of the validation and test strings."""
    lengths: tuple[int, int] = (40, 256)
    """Shortest and longest string of test and validation."""
    test: int = 8192
    """Test strings, scored once after the last step."""
    validation: int = 2048
    """Validation strings of the test lengths, and as many of the training lengths."""
    validate: Literal["test", "training"] = "test"
    """Lengths of the validation that stops a run early and chooses among learning rates."""
    lengths_by: Literal["draw", "turn"] = "draw"
    """draw: lengths of scored strings are drawn. turn: legal lengths take turns, so each has as many strings."""
    every: int = 1000
    """Steps between validations; 0 for the last step only."""
    bins: tuple[int, ...] = (40, 64, 96, 128, 160, 192, 224, 256)
    """Edges of the length bins. A bin holds the lengths above one edge up to the next; the first includes its edge."""
    extrapolate: tuple[int, ...] = (512, 1024)
    """Further lengths to score after the last step (the nearest legal length below each)."""
    extrapolation: int = 512
    """Strings for each further length."""
    score: Literal["tokens", "lengths", "strings"] = "tokens"
    """tokens: accuracy over all scored tokens. lengths: its mean over lengths. strings: share of strings with every
    answer right; chance and floors are then those of single answers.
    """
    batch: int = 256
    """Most strings scored at a time; a CPU takes fewer."""
    file: str = ""
    """A file of `ladder export` to score in place of the test strings. Its lengths and count replace those here."""
    file_sha256: str = ""
    """Hash of that file's strings, which is part of the run's identity; computed if not given."""

    def __post_init__(self) -> None:
        check_types(self, "eval")
        require(1 <= self.lengths[0] <= self.lengths[1], f"eval.lengths must rise from 1, not {self.lengths}")
        refuse_endless(self.lengths[1], what="eval.lengths")
        for name in ("test", "validation", "extrapolation", "batch"):
            refuse_outside(getattr(self, name), what=f"eval.{name}")
        require(0 <= self.seed < 2**63, f"eval.seed must be in 0..2**63-1, not {self.seed}")
        require(self.every >= 0, f"eval.every must not be negative: {self.every}")
        require(list(self.bins) == sorted(set(self.bins)), f"eval.bins must rise, not {self.bins}")
        require(all(length >= 1 for length in self.extrapolate), "eval.extrapolate lengths must be positive")
        refuse_endless(max(self.extrapolate, default=0), what="eval.extrapolate")
        refuse_endless(max(self.bins, default=0), what="eval.bins")
        require(
            bool(self.file) or not self.file_sha256, "eval.file_sha256 is the hash of eval.file, which is not given"
        )


@dataclass(frozen=True, kw_only=True)
class Run:
    """One cell's training and evaluation. All of it is checked at construction. A user's mistake is one ValueError."""

    task: Task
    model: ModelConfig
    train: Train = field(default_factory=Train)
    eval: Eval = field(default_factory=Eval)
    seed: int = 0
    """Keys the initial weights and the training strings, nothing else."""
    protocol: str = "xlstm_20k"
    """The preset (harness/config/presets.py) that labels this run. Tables name every setting that differs from it."""

    def __post_init__(self) -> None:
        for name, kind in {"task": Task, "model": ModelConfig, "train": Train, "eval": Eval}.items():
            part = getattr(self, name)
            require(isinstance(part, kind), f"{name} must be a {kind.__name__}, not {part!r}")
            object.__setattr__(self, name, checked(part, where=name))
        known = self.protocol in PROTOCOLS
        require(known, f"unknown protocol {self.protocol!r}{'' if known else did_you_mean(self.protocol, PROTOCOLS)}")
        _check_seed(self.seed)
        never = self.train.stop_after > 0 and self.eval.every == 0
        require(not never, "train.stop_after needs validations on the way: eval.every must not be 0")
        level = self.task.level
        require(level in LEVELS, f"{self.task.name}: no such level as {level!r}; there are {', '.join(LEVELS)}")
        if self.eval.file:
            object.__setattr__(self, "eval", self._with_file())
        for stage in self.train.curriculum or (self.train.lengths[1],):
            self._legal("train", (self.train.lengths[0], stage))
        self._legal("eval", self.eval.lengths)
        self._fits()
        if self.train.asks_what_follows:
            require(self.task.says_what_follows, f"{self.task.name} does not say what may follow in its strings")
        if self.train.carries_state:
            carried = self.model.stepwise and self.model.sees == "past"
            require(carried, f"train.cut and train.passed hand a state on, which {self.model.name} does not have")
            dropout = "dropout is not defined where strings are read in pieces (train.cut, train.passed)"
            require(self.model.dropout == 0, f"{self.model.name}: {dropout}")
        if self.task.decode == "teacher":
            require(
                self.model.stepwise and self.model.sees == "past",
                f"decode='teacher' feeds answers back token by token, which {self.model.name} cannot do",
            )

    def _with_file(self) -> Eval:
        """Return the evaluation with the lengths, the count and the hash of its file."""
        settings, task = self.eval, self.task
        if settings.file_sha256 and not Path(settings.file).exists():
            return settings  # a record whose file is gone can be read, but not scored again
        frozen = open_frozen(settings.file, settings.file_sha256)
        for name in ("name", "vocab", "answers"):
            theirs, ours = getattr(frozen.task, name, None), getattr(task, name, None)
            require(
                theirs == ours, f"{settings.file} was exported with another {name} of the task: {theirs}, not {ours}"
            )
        seen = frozen.split.partition("/")[0] in ("train", "validation")
        said = f"{settings.file} has strings of the split {frozen.split!r}, which runs learn or choose from"
        require(not seen, f"{said}: a test needs others, `ladder export {task.name} --split test`")
        count = len(frozen.length_of_B)
        return replace(settings, lengths=frozen.lengths, test=count, file_sha256=frozen.sha256)

    def _fits(self) -> None:
        """Refuse strings longer than the model can take before anything is trained."""
        most = self.model.longest_input
        if most is None:
            return
        ends = [*self.train.curriculum, self.train.lengths[1], self.eval.lengths[1], *self.eval.extrapolate]
        for end in sorted(ends):
            positions = max(map(self.task.positions, self.task.legal_lengths(1, end)[-1:]), default=0)
            require(
                positions <= most,
                f"{self.model.name} takes at most {most} positions (model.max_length); length {end} has {positions}",
            )

    def _legal(self, what: str, lengths: tuple[int, int]) -> None:
        require(
            bool(self.task.legal_lengths(*lengths)),
            f"{self.task.name} has no string of length {lengths[0]}..{lengths[1]} ({what}.lengths)",
        )

    def with_seed(self, seed: int) -> "Run":
        """Return the same run with another seed. Nothing is validated again, since only the seed changes."""
        _check_seed(seed)
        other = copy(self)
        object.__setattr__(other, "seed", seed)
        return other

    @property
    def run_id(self) -> str:
        text = json.dumps(self.identity(), sort_keys=True, separators=(",", ":"))
        digest = hashlib.sha256(text.encode()).hexdigest()[:10]
        return f"{self.task.name}-{self.model.name}-s{self.seed}-{digest}"

    def identity(self) -> dict[str, Any]:
        """Return what `run_id` hashes: the versions and every setting that differs from its default.

        So a new setting leaves the ids of old runs unchanged. A changed default must raise a version (`SCHEMA` for
        those of Train and Eval). tests/golden/defaults.json checks this.
        """
        tree = self.plain()
        for name in ("task", "model", "train", "eval"):
            defaults = default_settings(type(getattr(self, name)))
            part = tree[name].items()
            tree[name] = {k: value for k, value in part if k not in defaults or defaults[k] != value}
        tree["eval"].pop("file", None)  # the hash names it, wherever it lies
        for name in self.task.outside_identity:
            tree["task"].pop(name, None)
        return tree

    @property
    def plugins(self) -> list[str]:
        """Return the `--plugin` words that find its task and model again. They are no part of its identity."""
        parts = (self.task, self.model)
        modules = [(part.name, type(part).__module__, getattr(part, "of_class", "")) for part in parts]
        return list(dict.fromkeys(load_words(modules, typed="pass")))

    @property
    def whereabouts(self) -> tuple[str, ...]:
        """Return the names of settings that are paths: a file may have moved since."""
        return ("eval.file", *(f"task.{name}" for name in self.task.outside_identity))

    def plain(self) -> dict[str, Any]:
        """Return the canonical tree of JSON values that config.json holds."""
        return {
            "schema": SCHEMA,
            "protocol": self.protocol,
            "task": {"name": self.task.name, "version": self.task.version, **plain(self.task)},
            "model": {"name": self.model.name, "version": self.model.version, **plain(self.model)},
            "train": plain(self.train),
            "eval": plain(self.eval),
            "seed": self.seed,
        }

    @classmethod
    def from_plain(cls, tree: dict[str, Any]) -> "Run":
        """Return the run of a config.json. Refuse one of another version of the schema, task or model."""
        try:
            return cls._from_plain(dict(tree))
        except (AttributeError, KeyError, TypeError):
            raise ValueError("its config.json is no run's") from None

    @classmethod
    def _from_plain(cls, tree: dict[str, Any]) -> "Run":
        plugins = tree.pop("plugins", [])
        if plugins:
            refuse_missing(plugins, task=tree["task"]["name"], model=tree["model"]["name"])
        wanted = {"schema", "protocol", "task", "model", "train", "eval", "seed"}
        require(set(tree) == wanted, f"a record's config has the keys {', '.join(sorted(wanted))}")
        require(tree.pop("schema") == SCHEMA, f"the record's schema is not {SCHEMA}")
        parts: dict[str, Any] = {}
        for name, find in (("task", find_task), ("model", find_model)):
            part = dict(tree.pop(name))
            refuse_class(part["name"])
            part_cls, version = find(part.pop("name")), part.pop("version")
            require(
                version == part_cls.version,
                f"{part_cls.name} is version {part_cls.version} here; the record was made with version {version}",
            )
            parts[name] = from_plain(part_cls, part, where=name)
        parts["train"] = from_plain(Train, tree.pop("train"), where="train")
        parts["eval"] = from_plain(Eval, tree.pop("eval"), where="eval")
        parts |= {name: tree.pop(name) for name in ("seed", "protocol")}
        return cls(**parts)


def _check_seed(seed: int) -> None:
    """Refuse a seed of more than 32 bits, because torch's generator, which draws the weights, reads no more."""
    require(type(seed) is int and 0 <= seed < 2**32, f"seed must be in 0..2**32-1, not {seed!r}")


def without_training_targets(task: Task) -> Task:
    """Return the task as it is scored: `supervision` changes the training targets, never what is measured."""
    return task if task.supervision == "final" else replace(task, supervision="final")
