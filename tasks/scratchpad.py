"""The answer of another task after its own steps, written one by one, to test if written steps help.

    a b b ACT  ->  a b a        scratchpad="steps": the parity of each prefix; the last is the answer
    a b b ACT . .  ->  a        scratchpad="padding": as many positions, with nothing on them
    a b b ACT  ->  a            scratchpad="none"

The steps are the answers of the prefixes, which are the states of the task's automaton: for mod_arithmetic the values
after each digit, for word_problem the products. Steps are fed in: the right ones in training, the model's own in
evaluation (`decode`), so a mistake is carried on. Accuracy is over all steps and the answer, and exact strings have no
mistake. The metric `last_answer` is the answer alone, which can be compared with the other two settings. A length
counts the symbols of the string. Nye et al. 2021 (2112.00114) write steps down. Pfau et al. 2024 (2404.15758) have the
control, filler in their place. With steps a fixed depth can do what it otherwise cannot (Merrill and Sabharwal 2023,
2310.07923), so no demand is declared.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from chomsky_ladder.tasks.base import PAD, Batch, Task, register
from chomsky_ladder.tasks.cycle_nav import CycleNav
from chomsky_ladder.tasks.draw import Draw
from chomsky_ladder.tasks.layout import Classification
from chomsky_ladder.tasks.mod_arithmetic import ModArithmetic
from chomsky_ladder.tasks.parity import Parity
from chomsky_ladder.tasks.word_problem import WordProblem


@register
@dataclass(frozen=True, kw_only=True)
class Scratchpad(Task):
    name, version, level = "scratchpad", 1, "regular"

    of: Literal["parity", "cycle_nav", "mod_arithmetic", "word_problem"] = "parity"
    """The task whose answer is asked for."""
    group: str = "S5"
    """The group, for word_problem."""
    scratchpad: Literal["steps", "padding", "none"] = "steps"
    """The tokens before the answer: its steps, as many fillers, or nothing."""
    decode: Literal["parallel", "teacher"] = "teacher"
    """Input at the steps. parallel: blank. teacher: the step before, in evaluation the model's own."""

    def __post_init__(self) -> None:
        if self.scratchpad != "steps":  # there is nothing to feed back
            object.__setattr__(self, "decode", "parallel")
        if self.of != "word_problem" and self.group != "S5":
            raise ValueError(f"scratchpad: group is a setting of of='word_problem', not of {self.of!r}")
        _ = self.task

    @property
    def writes_steps(self) -> bool:
        return self.scratchpad == "steps"

    @property
    def task(self) -> Classification:
        """Return the underlying task."""
        if self.of == "word_problem":
            return WordProblem(count="input", group=self.group)
        if self.of == "mod_arithmetic":
            return ModArithmetic(count="input", query="none")
        return (CycleNav if self.of == "cycle_nav" else Parity)(count="input")

    @property
    def vocab(self) -> tuple[str, ...]:
        return *self.task.vocab, "ACT", "."

    @property
    def answers(self) -> tuple[int, ...]:
        return self.task.answers

    @property
    def stride(self) -> int:
        """Return the number of symbols in a step."""
        return 2 if self.of == "mod_arithmetic" else 1

    def legal_lengths(self, low: int, high: int) -> tuple[int, ...]:
        return self.task.legal_lengths(low, high)

    def positions(self, length: int) -> int:
        """Count the symbols, ACT, and a place for every step but the last, whose answer never enters the input."""
        return length + 1 + (0 if self.scratchpad == "none" else (length - 1) // self.stride)

    def sample(self, draw: Draw, lengths_B: Tensor, width: int) -> Batch:
        act, filler = len(self.task.vocab), len(self.task.vocab) + 1
        size_B1 = lengths_B[:, None]
        x_BL = self.task.symbols(draw, lengths_B, width)
        step_BM = self.task.prefix_answers(x_BL)[:, :: self.stride]
        steps_B1 = (size_B1 - 1) // self.stride + 1
        position_L = torch.arange(width, device=lengths_B.device)
        slot_BL = position_L - size_B1  # the first answer is read at ACT
        slots_B1 = torch.ones_like(steps_B1) if self.scratchpad == "none" else steps_B1
        is_last_BL = slot_BL == slots_B1 - 1
        scored_BL = (slot_BL >= 0) & (slot_BL < slots_B1) if self.writes_steps else is_last_BL
        which_BL = slot_BL if self.writes_steps else torch.where(is_last_BL, steps_B1 - 1, 0)
        answer_BL = step_BM.gather(1, which_BL.clamp(0, step_BM.shape[1] - 1))
        targets_BL = torch.where(scored_BL, answer_BL, PAD)
        behind_BL = (slot_BL >= 1) & (slot_BL < slots_B1)
        between_BL = torch.full_like(targets_BL, filler)
        if self.writes_steps:
            between_BL = targets_BL.roll(1, dims=1) if self.decode == "teacher" else torch.zeros_like(targets_BL)
        tokens_BL = torch.where(slot_BL < 0, x_BL, torch.where(behind_BL, between_BL, PAD))
        tokens_BL = torch.where(slot_BL == 0, act, tokens_BL)
        length_B = lengths_B + slots_B1[:, 0]
        return Batch(tokens_BL, targets_BL, scored_BL, length_B, lengths_B + 1 if self.writes_steps else length_B)

    def answer_law(self, length: int) -> np.ndarray:
        """Return the law: a step is distributed like the answer of a string that ends there."""
        ends = range(1, length + 1, self.stride) if self.writes_steps else (length,)
        law = np.concatenate([self.task.answer_law(end) for end in ends])
        return np.pad(law, ((0, 0), (0, 2)))
