"""Strings that leave a language by a few edits, drawn in whole batches at given lengths.

    size 6, one insertion and two deletions  ->  a member of 7 symbols, edited three times

These are the non-members of Butoi et al. 2024 (2411.07107). With a fair coin, a string is a member after Geom(1/2)
edits, or uniform, and it is drawn again until it is no member. An edit inserts, replaces or deletes with equal
probability, a uniform symbol at a uniform place. In the paper the length is what results. Here it is given, so edits
are those that lead to it from a length with members. All such lengths are equally likely, as in the paper within its
range. There are at most MOST_EDITS edits, which the paper exceeds in one of 64 strings.
"""

from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from chomsky_ladder.tasks.draw import Draw

MOST_EDITS = 6
PLANS = 8  # plans drawn for each string; the first feasible one is used
INSERT, REPLACE, DELETE, NOTHING = range(4)


class Language(Protocol):
    """The interface of a language over 0 .. num_symbols - 1."""

    @property
    def num_symbols(self) -> int: ...

    def has_members(self, most: int, device: torch.device) -> Tensor:
        """Return True for sizes 0, 1 .. `most`, or beyond, that have members."""
        ...

    def members(self, draw: Draw, size_B: Tensor, columns: int) -> Tensor:
        """Draw members [B, columns]; any strings for a size that has none."""
        ...

    def accepts(self, x_BL: Tensor, size_B: Tensor) -> Tensor:
        """Return True for strings that are members, bool [B]. Symbols beyond a string's size are arbitrary."""
        ...

    def others(self, draw: Draw, size_B: Tensor, columns: int) -> Tensor:
        """Draw strings that are surely no members, for when all tries are members [B, columns]."""
        ...


def non_members(language: Language, draw: Draw, size_B: Tensor, columns: int, *, tries: int) -> Tensor:
    """Return the first of `tries` strings that is no member; if all are members, one of `others`."""
    x_BL = language.others(draw.child("others"), size_B, columns)
    for number in reversed(range(tries)):
        tried_BL = _tried(language, draw.child(f"try {number}"), size_B, columns)
        x_BL = torch.where(language.accepts(tried_BL, size_B)[:, None], x_BL, tried_BL)
    return x_BL


def _tried(language: Language, draw: Draw, size_B: Tensor, columns: int) -> Tensor:
    """Draw edited members, or uniform strings."""
    plan = planned(draw, size_B, language.has_members(columns + MOST_EDITS, size_B.device))
    uniform_BL = draw.integers(language.num_symbols, (columns,))
    member_BL = language.members(draw.child("members"), plan.size_B, columns + MOST_EDITS)
    edited_BL = edited(draw, member_BL, plan, num_symbols=language.num_symbols)[:, :columns]
    perturbs_B = (draw.integers(2) == 0) & plan.found_B
    return torch.where(perturbs_B[:, None], edited_BL, uniform_BL)


class Plan(NamedTuple):
    """Edits that lead to a string's size."""

    kind_BM: Tensor
    size_B: Tensor  # before the first of them
    found_B: Tensor


def planned(draw: Draw, size_B: Tensor, has_members_S: Tensor) -> Plan:
    """Draw the kinds of Geom(1/2) edits, at most MOST_EDITS, that lead from a size with members."""
    on_BMP = draw.integers(2, (MOST_EDITS - 1, PLANS)).cumprod(1)
    kind_BMP = draw.integers(3, (MOST_EDITS, PLANS))
    kind_BMP = torch.cat([kind_BMP[:, :1], torch.where(on_BMP == 1, kind_BMP[:, 1:], NOTHING)], dim=1)
    grows_BMP = (kind_BMP == INSERT).to(torch.int64) - (kind_BMP == DELETE).to(torch.int64)
    start_BP = size_B[:, None] - grows_BMP.sum(1)
    before_BMP = start_BP[:, None] + grows_BMP.cumsum(1) - grows_BMP
    takes_BMP = (kind_BMP == REPLACE) | (kind_BMP == DELETE)
    can_BP = (~takes_BMP | (before_BMP > 0)).all(1) & (start_BP >= 0)
    can_BP = can_BP & has_members_S[start_BP.clamp(0, has_members_S.shape[0] - 1)]
    chosen_B1 = can_BP.to(torch.int64).argmax(1, keepdim=True)
    kind_BM = kind_BMP.gather(2, chosen_B1[:, None].expand(-1, MOST_EDITS, -1))[..., 0]
    found_B = can_BP.any(1)
    return Plan(kind_BM, torch.where(found_B, start_BP.gather(1, chosen_B1)[:, 0], size_B), found_B)


def edited(draw: Draw, x_BL: Tensor, plan: Plan, *, num_symbols: int) -> Tensor:
    """Apply the edits of their plans to the strings."""
    position_L, size_B = torch.arange(x_BL.shape[1], device=x_BL.device), plan.size_B
    for kind_B in plan.kind_BM.unbind(1):
        inserts_B, deletes_B = kind_B == INSERT, kind_B == DELETE
        place_B1 = draw.integers((size_B + inserts_B.to(torch.int64)).clamp(min=1))[:, None]
        symbol_B, other_B = draw.integers(num_symbols), draw.integers(num_symbols - 1)
        replaced_B = (x_BL.gather(1, place_B1.clamp(max=x_BL.shape[1] - 1))[:, 0] + 1 + other_B) % num_symbols
        later_BL = (inserts_B[:, None] & (position_L > place_B1)).to(torch.int64)
        sooner_BL = (deletes_B[:, None] & (position_L >= place_B1)).to(torch.int64)
        x_BL = x_BL.gather(1, (position_L - later_BL + sooner_BL).clamp(max=x_BL.shape[1] - 1))
        written_B = torch.where(inserts_B, symbol_B, replaced_B)
        writes_B = inserts_B | (kind_B == REPLACE)
        x_BL = torch.where((position_L == place_B1) & writes_B[:, None], written_B[:, None], x_BL)
        size_B = size_B + inserts_B.to(torch.int64) - deletes_B.to(torch.int64)
    return x_BL
