"""The belief of an ideal observer about a group's element, when nothing shows which of the seen elements took effect.

    Z2, effect=75, seen 1 1  ->  P(0) = .75^2 + .25^2 = .625, P(1) = .375        the best answer is 0, right at .625

A seen element takes effect with probability e, so b'(z) = e b(z y^-1) + (1 - e) b(z). A state that is shown, whole or
in part, leaves the elements that agree with it: b'(z) ~ b(z) [seen(z) = shown]. The best answer is the likeliest part
of the state. No observer is right more often than the belief in it says.
"""

import numpy as np
import torch
from torch import Tensor

from chomsky_ladder.tasks import _groups
from chomsky_ladder.tasks._kept import kept


@kept
def _before(group: str, device: torch.device) -> Tensor:
    """Return [y, z]: the element that y takes to z."""
    return torch.from_numpy(np.argsort(_groups.group(group).table, axis=0).T.copy()).to(device)


def best_chances(group: str, seen_BL: Tensor, shown_BL: Tensor, part_N: Tensor, *, effect: float) -> Tensor:
    """Return the belief in the best answer after each position, float64 [B, L].

    `seen_BL` are elements, 0 where there is none. `shown_BL` are shown parts of the state, -1 where there is none.
    `part_N` is the part that is asked for, of each element.
    """
    before_NN, num = _before(group, seen_BL.device), len(part_N)
    is_part_NC = (part_N[:, None] == torch.arange(int(part_N.max()) + 1, device=part_N.device)).double()
    belief_BN = (torch.arange(num, device=part_N.device) == 0).double().repeat(len(seen_BL), 1)
    best = []
    for seen_B, shown_B in zip(seen_BL.unbind(1), shown_BL.unbind(1), strict=True):
        belief_BN = effect * belief_BN.gather(1, before_NN[seen_B]) + (1 - effect) * belief_BN
        agrees_BN = (shown_B[:, None] == part_N) | (shown_B[:, None] < 0)
        belief_BN = torch.where(agrees_BN, belief_BN, 0)
        belief_BN = belief_BN / belief_BN.sum(1, keepdim=True)
        best.append((belief_BN @ is_part_NC).amax(1))
    return torch.stack(best, dim=1)
