"""The three FLaRe languages of numbers, the least bit first: correct sums, products and square roots.

Padding with 0 is allowed everywhere. The lengths of the parts are spacings of uniform cuts, which equals the published
Dirichlet distributions with integer weights. Numbers are in limbs (tasks/_binary.py).
"""

from abc import abstractmethod

import torch
from torch import Tensor
from torch.nn.functional import pad

from chomsky_ladder.tasks._binary import LIMB, ZERO, bits, carried, exceeds, limbs, products
from chomsky_ladder.tasks._flare_languages import Language, at, places
from chomsky_ladder.tasks._following import only_the_next
from chomsky_ladder.tasks.compute_sqrt import ComputeSqrt
from chomsky_ladder.tasks.draw import Draw

OPERATOR = 2


def part(x_BL: Tensor, start_B1: Tensor, end_B1: Tensor, *, num: int) -> Tensor:
    """Return the number between two places, as limbs."""
    place_BL = places(x_BL) + start_B1
    return limbs((at(x_BL, place_BL) == 1) & (place_BL < end_B1), num=num)


def following_number(language: Language, x_BL: Tensor, size_B: Tensor, *, signs: int) -> Tensor:
    """Allow bits, and a sign after at least one; after the last sign the number's bits, then zeros or the end."""
    num = language.num_symbols
    is_sign_BL, place_L = x_BL >= OPERATOR, places(x_BL)
    seen_BL = is_sign_BL.cumsum(1)
    bit_BL1 = torch.ones_like(is_sign_BL)[..., None].expand(-1, -1, OPERATOR)
    sign_BLS = torch.stack([(seen_BL == sign) & ~is_sign_BL for sign in range(signs)], 2)
    free_BLK = torch.cat([bit_BL1, sign_BLS, torch.zeros_like(is_sign_BL)[..., None]], 2)
    ones_BL = (x_BL == 1) & (place_L < size_B[:, None])
    ones_after_BL = ones_BL.sum(1, keepdim=True) - ones_BL.cumsum(1)
    zero_or_end_K = torch.arange(num + 1, device=x_BL.device) % num == 0
    done_BL1 = ((ones_after_BL == 0) & ~is_sign_BL)[..., None]
    forced_BLK = torch.where(done_BL1, zero_or_end_K, only_the_next(language, x_BL, size_B))
    return torch.where((seen_BL == signs)[..., None], forced_BLK, free_BLK)


def written(number_BK: Tensor, place_BL: Tensor) -> Tensor:
    return bits(number_BK, place_BL.clamp(0, number_BK.shape[1] * LIMB - 1))


class Operation(Language):
    """x op y = z."""

    cuts = 2
    """Number of uniform cuts, of which the two smallest separate x, y and z."""

    @abstractmethod
    def made(self, x_BK: Tensor, y_BK: Tensor) -> Tensor:
        """Return z."""

    @abstractmethod
    def bounded(self, draw: Draw, x_BK: Tensor, x_BL: Tensor, sizes_B: tuple[Tensor, ...], columns: int) -> Tensor:
        """Draw y with at most this many bits, so that z is not too long."""

    def has(self, size: int) -> bool:
        return size >= 5

    def members(self, draw: Draw, size_B: Tensor, columns: int) -> Tensor:
        spare_B = (size_B - 5).clamp(min=0)
        cut_BC = draw.integers(spare_B.clamp(min=1)[:, None], (self.cuts,)).sort(dim=1).values
        one_B, other_B = cut_BC[:, 0] + 1, cut_BC[:, 1] - cut_BC[:, 0] + 1
        x_size_B, y_size_B = torch.minimum(one_B, other_B), torch.maximum(one_B, other_B)
        z_size_B = spare_B - cut_BC[:, 1] + 1
        bits_BL = draw.integers(2, (columns,))
        bits_BL = bits_BL * (places(bits_BL) < torch.minimum(x_size_B, self.widest(z_size_B))[:, None])
        num = columns // LIMB + 2
        x_BK = limbs(bits_BL, num=num)
        y_BK = self.bounded(draw, x_BK, bits_BL, (y_size_B, z_size_B, size_B), columns)
        z_BK = self.made(x_BK, y_BK)
        swaps_B1 = draw.integers(2, (1,)) == 1
        first_B1 = torch.where(swaps_B1, y_size_B[:, None], x_size_B[:, None])
        first_BK, second_BK = torch.where(swaps_B1, y_BK, x_BK), torch.where(swaps_B1, x_BK, y_BK)
        place_BL = places(bits_BL).expand_as(bits_BL)
        equals_B1 = size_B[:, None] - 1 - z_size_B[:, None]
        x_BL = torch.where(
            place_BL < first_B1, written(first_BK, place_BL), written(second_BK, place_BL - first_B1 - 1)
        )
        x_BL = torch.where(place_BL > equals_B1, written(z_BK, place_BL - equals_B1 - 1), x_BL)
        x_BL = torch.where(place_BL == first_B1, OPERATOR, x_BL)
        return torch.where(place_BL == equals_B1, OPERATOR + 1, x_BL)

    def widest(self, z_size_B: Tensor) -> Tensor:
        """Return the most bits of x for which z can have this many."""
        return z_size_B

    def accepts(self, x_BL: Tensor, size_B: Tensor) -> Tensor:
        inside_BL = places(x_BL) < size_B[:, None]
        signs = [((x_BL == sign) & inside_BL).to(torch.int64) for sign in (OPERATOR, OPERATOR + 1)]
        first_B1, second_B1 = (sign_BL.argmax(1, keepdim=True) for sign_BL in signs)
        alone_B = (signs[0].sum(1) == 1) & (signs[1].sum(1) == 1)
        shaped_B = (first_B1 >= 1) & (second_B1 > first_B1 + 1) & (size_B[:, None] > second_B1 + 1)
        num = x_BL.shape[1] // LIMB + 2
        x_BK = part(x_BL, torch.zeros_like(first_B1), first_B1, num=num)
        y_BK = part(x_BL, first_B1 + 1, second_B1, num=num)
        z_BK = part(x_BL, second_B1 + 1, size_B[:, None], num=num)
        return alone_B & shaped_B[:, 0] & (self.made(x_BK, y_BK) == z_BK).all(1)

    def following(self, x_BL: Tensor, size_B: Tensor) -> Tensor:
        return following_number(self, x_BL, size_B, signs=2)


class Addition(Operation):
    def made(self, x_BK: Tensor, y_BK: Tensor) -> Tensor:
        return carried(x_BK + y_BK)

    def bounded(self, draw: Draw, x_BK: Tensor, x_BL: Tensor, sizes_B: tuple[Tensor, ...], columns: int) -> Tensor:
        """Draw y uniformly below 2**bits and z's bound: a uniform fraction of the smaller, rounded down."""
        y_size_B, z_size_B, size_B = sizes_B
        num, place_L = x_BK.shape[1], places(x_BL)
        free_BK = limbs(place_L < y_size_B[:, None], num=num)
        room_BK = limbs((place_L < z_size_B[:, None]) & (x_BL == 0), num=num)
        most_BK = torch.where(exceeds(free_BK, room_BK)[:, None], room_BK, free_BK)
        values_BK = carried(most_BK + (torch.arange(num, device=x_BL.device) == 0).to(torch.int64))
        # As many limbs of the fraction as a row's own size needs, so that a wider batch changes nothing.
        needed_B1 = size_B[:, None] // LIMB + 4
        fraction_BK = draw.integers(1 << LIMB, (num + 2,))
        fraction_BK = torch.where(places(fraction_BK) < needed_B1, fraction_BK, 0).flip(1)
        return carried(products(pad(values_BK, (0, 2)), fraction_BK, num=2 * num + 2))[:, num + 2 :]


class Multiplication(Operation):
    cuts = 3

    def made(self, x_BK: Tensor, y_BK: Tensor) -> Tensor:
        return carried(products(x_BK, y_BK, num=x_BK.shape[1]))

    def widest(self, z_size_B: Tensor) -> Tensor:
        return z_size_B.new_full((), 2**31)

    def bounded(self, draw: Draw, x_BK: Tensor, x_BL: Tensor, sizes_B: tuple[Tensor, ...], columns: int) -> Tensor:
        """Draw y uniformly among numbers so short that the product surely fits."""
        y_size_B, z_size_B, _ = sizes_B
        x_bits_B = (x_BL * (places(x_BL) + 1)).amax(1)
        fits_B = torch.where(x_bits_B > 0, (z_size_B - x_bits_B).clamp(min=0), y_size_B)
        bits_BL = draw.integers(2, (columns,))
        return limbs(bits_BL * (places(bits_BL) < torch.minimum(y_size_B, fits_B)[:, None]), num=x_BK.shape[1])


class SquareRoot(Language):
    """x = z, where z is the square root of x, rounded down."""

    def has(self, size: int) -> bool:
        return size >= 3

    def members(self, draw: Draw, size_B: Tensor, columns: int) -> Tensor:
        spare_B = (size_B - 3).clamp(min=0)
        first_B1 = draw.integers(spare_B.clamp(min=1)[:, None], (2,)).amax(1, keepdim=True) + 1
        z_size_B1 = size_B[:, None] - 1 - first_B1
        bits_BL = draw.integers(2, (columns,))
        x_BL = bits_BL * (places(bits_BL) < torch.minimum(first_B1, 2 * z_size_B1))
        root_BL = _root(x_BL, first_B1)
        behind_BL = at(root_BL, places(x_BL) - first_B1 - 1) * (places(x_BL) - first_B1 - 1 < root_BL.shape[1])
        x_BL = torch.where(places(x_BL) > first_B1, behind_BL, x_BL)
        return torch.where(places(x_BL) == first_B1, OPERATOR, x_BL)

    def accepts(self, x_BL: Tensor, size_B: Tensor) -> Tensor:
        inside_BL = places(x_BL) < size_B[:, None]
        sign_BL = (x_BL == OPERATOR) & inside_BL
        first_B1 = sign_BL.to(torch.int64).argmax(1, keepdim=True)
        shaped_B = (sign_BL.sum(1) == 1) & (first_B1[:, 0] >= 1) & (size_B > first_B1[:, 0] + 1)
        root_BL = _root((x_BL == 1) & (places(x_BL) < first_B1), first_B1.clamp(min=1))
        place_BL = places(x_BL) + first_B1 + 1
        said_BL = (at(x_BL, place_BL) == 1) & (place_BL < size_B[:, None])
        return shaped_B & (root_BL == said_BL).all(1)

    def following(self, x_BL: Tensor, size_B: Tensor) -> Tensor:
        return following_number(self, x_BL, size_B, signs=1)


def _root(x_BL: Tensor, size_B1: Tensor) -> Tensor:
    """Return the root of a number of this many bits, the least first, in as many columns."""
    columns = x_BL.shape[1]
    highest_first_BL = at(x_BL.to(torch.int64), size_B1 - 1 - places(x_BL))
    tokens_BL, _ = _ROOTS.transduce(highest_first_BL + ZERO, size_B1[:, 0])
    slots_B1 = (size_B1 + 1) // 2
    place_BL = slots_B1 - 1 - torch.arange(columns, device=x_BL.device)
    found_BL = (at(tokens_BL, place_BL) - ZERO) * (place_BL >= 0)
    return torch.where(x_BL.any(1, keepdim=True), found_BL, 0)


_ROOTS = ComputeSqrt()
