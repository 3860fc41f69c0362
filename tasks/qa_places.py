"""The place of a person after a story of who went where.

    mary went to kitchen . john went to cellar . mary went to attic . where is mary ?  ->  attic

A length is the number of facts, each with a random person and place. The question is about any person mentioned, with
equal probability. The place in the last fact is the answer to .61 of the stories of 2 facts, and to .23 of those of 20
and more. Outside the hierarchy: a finite table of eight places, 9**8 states to a finite machine. After the first of the
bAbI questions, one supporting fact, of Weston et al. 2015 (1502.05698), with longer stories and more names.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from chomsky_ladder.tasks._sentences import Story
from chomsky_ladder.tasks.base import register
from chomsky_ladder.tasks.draw import Draw

NAMES = ("mary", "john", "sandra", "daniel", "anna", "peter", "emma", "tom")
PLACES = ("kitchen", "garden", "office", "bathroom", "hallway", "bedroom", "cellar", "attic")
FIRST_NAME = 7
FIRST_PLACE = FIRST_NAME + len(NAMES)


@register
@dataclass(frozen=True, kw_only=True)
class QaPlaces(Story):
    name, version, level = "qa_places", 1, "none"

    @property
    def vocab(self) -> tuple[str, ...]:
        return "PAD", ".", "?", "where", "is", "went", "to", *NAMES, *PLACES

    @property
    def answers(self) -> tuple[int, ...]:
        return tuple(range(FIRST_PLACE, FIRST_PLACE + len(PLACES)))

    @property
    def state_sizes(self) -> tuple[int, ...]:
        """Return the sizes: the place of each person, from 1; 0 before the first mention."""
        return (len(PLACES) + 1,) * len(NAMES)

    def statements(self) -> list[str]:
        return [f"{name} went to {place} ." for name in NAMES for place in PLACES]

    def questions(self) -> list[str]:
        return [f"where is {name} ?" for name in NAMES]

    def tell(self, draw: Draw, told_BN: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        columns = told_BN.shape[1]
        name_BN, place_BN = draw.integers(len(NAMES), (columns,)), draw.integers(len(PLACES), (columns,))
        said_BN = torch.where(told_BN, name_BN, name_BN[:, :1])  # the first one is always told
        mentioned_BP = said_BN.new_zeros(len(said_BN), len(NAMES)).scatter(1, said_BN, 1)
        upto_BP = mentioned_BP.cumsum(1)
        asked_B = (upto_BP <= draw.integers(upto_BP[:, -1])[:, None]).sum(1)
        latest_BN = torch.arange(columns, device=told_BN.device) * (told_BN & (name_BN == asked_B[:, None]))
        place_B = place_BN.gather(1, latest_BN.argmax(1, keepdim=True))[:, 0]
        return name_BN * len(PLACES) + place_BN, asked_B, place_B + FIRST_PLACE

    def state(self, tokens_BL: Tensor) -> Tensor:
        """Return each person's place by the latest fact on them, from its last word on."""
        width = tokens_BL.shape[1]
        name_BL = torch.where(tokens_BL >= FIRST_PLACE, pad(tokens_BL, (3, 0))[:, :width] - FIRST_NAME, -1)
        position_L1 = torch.arange(1, width + 1, device=tokens_BL.device)[:, None]
        named_BLP = name_BL[..., None] == torch.arange(len(NAMES), device=tokens_BL.device)
        latest_BLP = torch.where(named_BLP, position_L1, 0).cummax(1).values
        place_BL = pad(tokens_BL - FIRST_PLACE + 1, (1, 0))  # column 0 for those not mentioned yet
        return place_BL.gather(1, latest_BLP.flatten(1)).reshape(latest_BLP.shape)
