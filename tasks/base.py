"""A task: a frozen dataclass that draws whole batches of strings with their answers. This file also has the registry.

A new file in this folder with a registered class is a new task. A class registered by any other package is one, too.
Most tasks subclass `Classification` or `Transduction` (tasks/layout.py). These handle the layout, and the task adds the
language:

    @register
    @dataclass(frozen=True, kw_only=True)
    class Parity(Classification):
        name, version, level = "parity", 1, "regular"
        ...

Shape suffixes, here and everywhere: B batch, L time, D width, H heads, K key/head dim, V vocabulary or value dim,
N state, C classes, R replicas, S parts of a task's state.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, Literal, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from chomsky_ladder.tasks.draw import Draw

PAD = 0

Level = Literal["regular", "counter", "context_free", "context_sensitive", "none"]
LEVELS: dict[str, str] = {
    "regular": "regular",
    "counter": "counter",
    "context_free": "deterministic context-free",
    "context_sensitive": "context-sensitive",
    "none": "outside the hierarchy",
}


class Batch(NamedTuple):
    """Strings in the shape that a training step needs. PAD is padding and blank answer slot; the lengths say which."""

    tokens_BL: Tensor  # int64 input
    targets_BL: Tensor  # int64, the answer where scored, PAD elsewhere
    scored_BL: Tensor  # bool, the positions whose output is an answer
    length_B: Tensor  # input positions, with blank answer slots
    prompt_B: Tensor  # input positions up to and including the one where the first answer is read


class Floors(NamedTuple):
    """Accuracies that need no computation. A result is worth what it adds to the highest of them."""

    s_rand: float  # 1 / number of answer symbols: chance, and the zero of scaled accuracy
    best_constant: float  # always the most common answer
    content_free: float  # the best guess from length and position alone


@dataclass(frozen=True, kw_only=True)
class Task(ABC):
    """A distribution over strings with answers. Every field is a setting that the run's identity includes.

    `sample` must be a pure function of the draw and the lengths. It makes whole batches by tensor operations, without a
    loop over samples, another generator or host synchronisation.
    """

    name: ClassVar[str]
    version: ClassVar[int]  # raised whenever the sampled distribution changes
    level: ClassVar[Level]
    tracks_state: ClassVar[bool] = False
    """True if answers need the state of an automaton over many symbols.

    The table of state tracking shows these tasks.
    """
    demand: ClassVar[str] = ""
    """The language's demand on a state, a name of harness/config/theory.py; "" if none fits or it is not known."""
    hard: ClassVar[bool] = False
    """True if no architecture is known to solve it. The table of hard tasks shows these tasks."""
    decode = "parallel"  # without a type, so that a task's own field of this name keeps its place among the fields
    """Scoring of answers: from one pass, or ("teacher") by feeding the model's answers back, where supported."""
    supervision = "final"
    """Training targets: the answers, or ("dense") also intermediate ones. Scoring always uses the answers."""
    asks_once = False
    """True if a string has one answer, read at its last position, in training and in scoring. The last block then
    computes no other position (`Context.asked_B`).
    """
    writes_steps = False
    """True if all answers but the last are steps on the way to it. A property in tasks with such a setting."""
    holds_out = False
    """True if tests have what training never has (`after_pairs`). A property in tasks with such a setting."""
    is_unsure = False
    """True if strings do not determine their answers (`best_possible`). A property in tasks with such a setting."""
    blank_answer: ClassVar[int] = PAD
    """The target of answer slots after the last answer, if training uses every slot. It is never scored."""
    own_lengths: ClassVar[tuple[int, int] | None] = None
    """The task's own lengths for training and scoring, where protocols' lengths do not apply (a game's)."""
    outside_identity: ClassVar[tuple[str, ...]] = ()
    """Settings that are paths. A hash identifies the file instead, so the run's identity leaves the path out."""

    @property
    @abstractmethod
    def vocab(self) -> tuple[str, ...]:
        """Return a readable symbol for every token. The first is PAD."""

    @property
    @abstractmethod
    def answers(self) -> tuple[int, ...]:
        """Return the tokens that can be an answer."""

    @abstractmethod
    def legal_lengths(self, low: int, high: int) -> tuple[int, ...]:
        """Return the possible lengths in low..high, as the task counts them. The harness draws uniformly from these."""

    @abstractmethod
    def positions(self, length: int) -> int:
        """Return the number of input positions of a string of this length."""

    @abstractmethod
    def sample(self, draw: Draw, lengths_B: Tensor, width: int) -> Batch:
        """Draw one string for each row, of the given legal lengths, padded to `width` input positions."""

    def answer_law(self, length: int) -> np.ndarray:
        """Return P(answer slot j is scored and holds token v) for strings of this length, [slots, V] in float64.

        The default estimate counts fixed strings. Closed forms override it.
        """
        first, second = _counted_laws(self, length)
        return (first + second) / 2

    def uniform_law(self, slots: int = 1) -> np.ndarray:
        """Return the distribution in which every slot is scored and all answers are equally likely."""
        law = np.zeros((slots, len(self.vocab)))
        law[:, list(self.answers)] = 1 / len(self.answers)
        return law

    def floors(self, lengths: Sequence[int], *, score: Literal["tokens", "lengths"] = "tokens") -> Floors:
        """Return the floors over strings whose length is uniform on `lengths`, as accuracy over all answers or over
        lengths.

        A task with several right answers (`allowed`) overrides this, because guesses are then right more often.
        """
        if type(self).answer_law is Task.answer_law:  # an argmax chosen on one sample is scored on another
            pairs = [_counted_laws(self, length) for length in lengths]
            guesses, laws = [law for pair in pairs for law in pair], [law for pair in pairs for law in pair[::-1]]
        else:
            guesses = laws = [self.answer_law(length) for length in lengths]
        if score == "lengths":
            laws, guesses = ([law / law.sum() for law in table] for table in (laws, guesses))
        scored = sum(law.sum() for law in laws)
        constant = int(sum(guess.sum(axis=0) for guess in guesses).argmax())
        content_free = sum(
            np.take_along_axis(law, guess.argmax(axis=1)[:, None], axis=1).sum()
            for law, guess in zip(laws, guesses, strict=True)
        )
        best_constant = sum(law[:, constant].sum() for law in laws)
        return Floors(
            s_rand=1 / len(self.answers),
            best_constant=float(best_constant / scored),
            content_free=float(max(content_free, best_constant) / scored),  # a counted guess may miss the constant
        )

    @property
    def state_sizes(self) -> tuple[int, ...]:
        """Return the number of values of each part of `state`; () if no state is defined."""
        return ()

    def state(self, tokens_BL: Tensor) -> Tensor:
        """Return a perfect machine's state after each position, int64 [B, L, S], part s in range(state_sizes[s])."""
        raise NotImplementedError(f"{self.name} defines no state")

    @property
    def state_parts(self) -> tuple[str, ...]:
        """Return the names of the parts of `state`."""
        return tuple(map(str, range(len(self.state_sizes))))

    @property
    def state_views(self) -> dict[str, tuple[str, ...]]:
        """Return the views in which the state can be labelled, each with the names of its values.

        The first is the main one.
        """
        return {"state": tuple(map(str, range(max(self.state_sizes))))} if self.state_sizes else {}

    def state_as(self, view: str, tokens_BL: Tensor) -> Tensor:
        """Return the state in one of its views, int64 [B, L, S]."""
        return self.state(tokens_BL)

    def marks(self, device: torch.device) -> Tensor | None:
        """Return what is seen of each token by a probe of the raw strings, bool [V, F]; None for its name alone.

        A task of many tokens that have parts in common tells these.
        """
        return None

    def allowed(self, tokens_BL: Tensor) -> Tensor | None:
        """Return the right answers where there are several, bool [B, L, V].

        Accuracy is then the share of allowed answers.
        """
        return None

    def allowed_in(self, tokens_BL: Tensor, draw: Draw) -> Tensor | None:
        """Return the right answers of strings from this draw, for tasks whose strings alone do not determine them."""
        return self.allowed(tokens_BL)

    @property
    def allows_several(self) -> bool:
        """Return True if several answers may be right."""
        return type(self).allowed is not Task.allowed or type(self).allowed_in is not Task.allowed_in

    def final_answers(self, batch: Batch) -> Tensor:
        """Mark the final answer of tasks with `writes_steps`, [B, L]: the last scored position."""
        return batch.scored_BL & (batch.scored_BL.cumsum(1) == batch.scored_BL.sum(1, keepdim=True))

    def after_pairs(self, tokens_BL: Tensor) -> tuple[Tensor, Tensor]:
        """Mark the answers after two neighbours, and those after neighbours that training never has, bool [B, L] each.

        See `holds_out`.
        """
        raise NotImplementedError(f"{self.name} holds nothing out")

    def best_possible(self, tokens_BL: Tensor) -> Tensor:
        """Return P(the best answer at each position is right), float64 [B, L]. See `is_unsure`."""
        raise NotImplementedError(f"the strings of {self.name} determine their answers")

    def may_follow(self, batch: Batch) -> Tensor:
        """Return the tokens that may follow each position, with PAD for the end: bool [B, L, V], False where nothing is
        trained.

        A recogniser trains this on members, for the prefix up to the position, as an additional target.
        """
        raise NotImplementedError(f"{self.name} does not say what may follow")

    @property
    def says_what_follows(self) -> bool:
        """Return True if `may_follow` is defined."""
        return type(self).may_follow is not Task.may_follow

    @property
    def facts(self) -> dict[str, str]:
        """Return further facts on the task with these settings, for `ladder describe`."""
        return {}

    def read(self, text: str) -> list[int]:
        """Return the tokens of symbols by their names, separated by spaces."""
        token_of = {symbol: token for token, symbol in enumerate(self.vocab) if token != PAD}
        unknown = [word for word in text.split() if word not in token_of]
        if unknown or not text.split():
            some = ", ".join(list(token_of)[:12]) + (", .." if len(token_of) > 12 else "")
            what = f"no symbol {unknown[0]!r}" if unknown else "no empty strings"
            raise ValueError(f"{self.name} has {what}; its symbols are {some}")
        return [token_of[word] for word in text.split()]

    def spelled(self, tokens: Sequence[int]) -> str:
        """Return tokens as people read them."""
        return " ".join(self.vocab[token] for token in tokens)

    def oracle(self, prompt: Sequence[int]) -> list[int] | None:
        """Return the answers to one prompt by a slow, independent algorithm (optional).

        `ladder check` compares samples with it.
        """
        return None


def bounded(task: Task, name: str, low: int, high: int) -> None:
    """Refuse a setting outside low..high. A size with some zeros too many would run for ever."""
    value = getattr(task, name)
    if not low <= value <= high:
        raise ValueError(f"{task.name}: {name} must lie in {low}..{high}, not {value}")


COUNTED = 2000  # strings of each length


@lru_cache(maxsize=4096)
def _counted_laws(task: Task, length: int) -> tuple[np.ndarray, np.ndarray]:
    """Count the answers twice, in two samples of strings of one length."""
    slots = task.positions(length)  # no string has more answers than positions
    rows, laws = COUNTED // 2, []
    for half in range(2):
        # Each length has its own rows, so that the errors of many lengths average out.
        draw = Draw(seed=half, split="floors", rows_B=torch.arange(rows) + length * rows)
        batch = task.sample(draw, torch.full((rows,), length), slots)
        slot_BL = batch.scored_BL.cumsum(1) - 1
        index = (slot_BL * len(task.vocab) + batch.targets_BL)[batch.scored_BL]
        counts = torch.bincount(index, minlength=slots * len(task.vocab)).reshape(slots, -1)
        laws.append(counts.double().numpy() / rows)
    return laws[0], laws[1]


TASKS: list[type[Task]] = []  # in the order of registration; harness/config/registry.py resolves names and conflicts

AnyTask = TypeVar("AnyTask", bound=type[Task])


def register(cls: AnyTask) -> AnyTask:
    """Make a task known under its `name`."""
    TASKS.append(cls)
    return cls
