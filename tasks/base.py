"""What a task is: a frozen dataclass that draws whole batches of strings with their answers, and its registry.

A new file in this folder with a registered class is a new task; so is a class registered by any other package. Most
tasks subclass `Classification` or `Transduction` (tasks/layout.py), which own the layouts and leave the language:

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
    """Strings in the shape a training step wants. PAD is both padding and blank answer slot; the lengths tell."""

    tokens_BL: Tensor  # int64 input
    targets_BL: Tensor  # int64, the answer where scored, PAD elsewhere
    scored_BL: Tensor  # bool, the positions whose output is an answer
    length_B: Tensor  # input positions incl. blank answer slots
    prompt_B: Tensor  # input positions up to and incl. the one where the first answer is read


class Floors(NamedTuple):
    """Accuracies that need no computation. A result is worth what it adds to the highest of them."""

    s_rand: float  # 1 / number of answer symbols: chance, and the zero of scaled accuracy
    best_constant: float  # always the commonest answer
    content_free: float  # the best guess from length and position alone


@dataclass(frozen=True, kw_only=True)
class Task(ABC):
    """A distribution over strings with answers. Every field is a choice the run's identity includes.

    `sample` must be a pure function of the draw and the lengths: whole batches by tensor operations, no loop over
    samples, no other generator, no host synchronisation.
    """

    name: ClassVar[str]
    version: ClassVar[int]  # raised whenever the sampled distribution changes
    level: ClassVar[Level]
    tracks_state: ClassVar[bool] = False
    """Whether its answers ask for the state of an automaton behind many symbols: the table of state tracking has it."""
    demand: ClassVar[str] = ""
    """What its language asks of a state, a name of harness/config/theory.py; "" where none fits or it is not known."""
    hard: ClassVar[bool] = False
    """Whether no architecture is known to solve it: the table of hard tasks has it."""
    decode = "parallel"  # without a type: a task's own field of this name keeps its place among the fields
    """How answers are scored: from one pass, or ("teacher") fed back token by token; a setting of tasks that can."""
    supervision = "final"
    """What is trained on: the answers, or ("dense") targets on the way too; what is scored is always final."""
    asks_once = False
    """Whether a string has one answer, read at its last position, in training and in scoring: all else the last block
    makes is then left out (`Context.asked_B`)."""
    writes_steps = False
    """Whether its answers but the last are steps on the way to it; a property of tasks with such a setting."""
    rules: ClassVar[Literal["", "othello"]] = ""
    """The game whose board it is, where the harness knows its rules and can edit it (harness/inside/cases.py)."""
    blank_answer: ClassVar[int] = PAD
    """What an answer slot behind the last answer holds, for training that asks for every slot; nobody scores it."""
    own_lengths: ClassVar[tuple[int, int] | None] = None
    """The lengths of a task to which no protocol's apply (a game's): trained and scored on, whatever the preset."""
    outside_identity: ClassVar[tuple[str, ...]] = ()
    """Settings that say where something lies, not what it is: another one names it (a hash). In no run's identity."""

    @property
    @abstractmethod
    def vocab(self) -> tuple[str, ...]:
        """A readable symbol for every token; the first is PAD."""

    @property
    @abstractmethod
    def answers(self) -> tuple[int, ...]:
        """The tokens that can be an answer."""

    @abstractmethod
    def legal_lengths(self, low: int, high: int) -> tuple[int, ...]:
        """The lengths in low..high, as the task counts them, that it can make. The harness draws uniformly of these."""

    @abstractmethod
    def positions(self, length: int) -> int:
        """How many input positions a string of this length fills."""

    @abstractmethod
    def sample(self, draw: Draw, lengths_B: Tensor, width: int) -> Batch:
        """One string a row, of the given legal lengths, padded to `width` input positions."""

    def answer_law(self, length: int) -> np.ndarray:
        """P(answer slot j is scored and holds token v) for strings of this length, [slots, V] in float64.

        Closed forms override this estimate, which counts fixed strings.
        """
        first, second = _counted_laws(self, length)
        return (first + second) / 2

    def uniform_law(self, slots: int = 1) -> np.ndarray:
        """The law where every slot is scored and every answer as likely as the others."""
        law = np.zeros((slots, len(self.vocab)))
        law[:, list(self.answers)] = 1 / len(self.answers)
        return law

    def floors(self, lengths: Sequence[int], *, score: Literal["tokens", "lengths"] = "tokens") -> Floors:
        """The floors over strings whose length is uniform on `lengths`, as accuracy over all answers or over lengths.

        A task with several right answers (`allowed`) overrides this: guesses are then right more often.
        """
        if type(self).answer_law is Task.answer_law:  # an argmax chosen on a sample is scored on another one
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
        """The number of values of each part of `state`; empty where no state is defined."""
        return ()

    def state(self, tokens_BL: Tensor) -> Tensor:
        """What a perfect machine holds after each input position, int64 [B, L, S], part s in range(state_sizes[s])."""
        raise NotImplementedError(f"{self.name} defines no state")

    @property
    def state_parts(self) -> tuple[str, ...]:
        """The names of the parts of `state`."""
        return tuple(map(str, range(len(self.state_sizes))))

    @property
    def state_views(self) -> dict[str, tuple[str, ...]]:
        """The ways in which the state can be labelled, each with the names of its values; the first is the main one."""
        return {"state": tuple(map(str, range(max(self.state_sizes))))} if self.state_sizes else {}

    def state_as(self, view: str, tokens_BL: Tensor) -> Tensor:
        """The state under one of its views, int64 [B, L, S]."""
        return self.state(tokens_BL)

    def allowed(self, tokens_BL: Tensor) -> Tensor | None:
        """Where several answers are right: which, bool [B, L, V]. Accuracy is then the rate of allowed answers."""
        return None

    def allowed_in(self, tokens_BL: Tensor, draw: Draw) -> Tensor | None:
        """The same of strings that this draw made, for a task whose strings alone do not tell."""
        return self.allowed(tokens_BL)

    @property
    def allows_several(self) -> bool:
        """Whether several answers may be right."""
        return type(self).allowed is not Task.allowed or type(self).allowed_in is not Task.allowed_in

    def final_answers(self, batch: Batch) -> Tensor:
        """Where the answer itself stands, [B, L], of a task that `writes_steps` before it: at the last one scored."""
        return batch.scored_BL & (batch.scored_BL.cumsum(1) == batch.scored_BL.sum(1, keepdim=True))

    def may_follow(self, batch: Batch) -> Tensor:
        """Which tokens may stand behind each position, PAD for the end: bool [B, L, V], nothing where it is not asked.

        A recogniser asks in members, of the prefix up to the position. For training beside the answers.
        """
        raise NotImplementedError(f"{self.name} does not say what may follow")

    @property
    def says_what_follows(self) -> bool:
        """Whether `may_follow` is defined."""
        return type(self).may_follow is not Task.may_follow

    @property
    def facts(self) -> dict[str, str]:
        """What else is worth knowing of the task with these settings, for `ladder describe`."""
        return {}

    def read(self, text: str) -> list[int]:
        """Return the tokens of symbols by their names, with spaces between them."""
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
        """Optional: the answers to one prompt by a slow, independent algorithm; `ladder check` holds samples to it."""
        return None


def bounded(task: Task, name: str, low: int, high: int) -> None:
    """Refuse a setting outside low..high: a size mistyped by some zeros would run for ever."""
    value = getattr(task, name)
    if not low <= value <= high:
        raise ValueError(f"{task.name}: {name} must lie in {low}..{high}, not {value}")


COUNTED = 2000  # strings of each length


@lru_cache(maxsize=4096)
def _counted_laws(task: Task, length: int) -> tuple[np.ndarray, np.ndarray]:
    """The law by counting, twice: two samples of strings of one length."""
    slots = task.positions(length)  # no string has more answers than positions
    rows, laws = COUNTED // 2, []
    for half in range(2):
        # Rows of their own for each length, so that the errors of many lengths average out.
        draw = Draw(seed=half, split="floors", rows_B=torch.arange(rows) + length * rows)
        batch = task.sample(draw, torch.full((rows,), length), slots)
        slot_BL = batch.scored_BL.cumsum(1) - 1
        index = (slot_BL * len(task.vocab) + batch.targets_BL)[batch.scored_BL]
        counts = torch.bincount(index, minlength=slots * len(task.vocab)).reshape(slots, -1)
        laws.append(counts.double().numpy() / rows)
    return laws[0], laws[1]


TASKS: list[type[Task]] = []  # in the order of registration; harness/config/registry.py settles names and conflicts

AnyTask = TypeVar("AnyTask", bound=type[Task])


def register(cls: AnyTask) -> AnyTask:
    """Make a task known under its `name`."""
    TASKS.append(cls)
    return cls
