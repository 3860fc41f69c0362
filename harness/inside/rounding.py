"""Round a trained bilinear RNN: move the matrices of its first block to exact representations of the task's group.

    cycle of three    a trained matrix of "+1" keeps a plane and turns it by 118.6 degrees; rounded, by 120

A symbol that permutes the states of a task asks for matrices that multiply as the permutations do. A factor does not
matter, as every state is read at length 1. Training comes near such a representation, and the errors of symbols add up.
In the first block, matrices depend on the symbol alone. There each is moved in three steps:

    kept      the directions whose lengths grow alike on random strings (Lyapunov exponents): a subspace that the
              matrices keep to themselves. All else fades beside them. A single direction has nothing to round.
    exact     M(g) becomes the mean over h of M(hg) M(h)^-1, again and again: near representations become exact ones
              (Kazhdan 1982). M(g) starts as the product along a shortest word of g.
    written   the weights change by the least that gives every symbol its new matrix.

A subspace whose matrices end far from where they began was no representation, and stays as it is.
"""

from collections.abc import Iterable, Sequence
from copy import deepcopy
from typing import NamedTuple

import torch
from torch import Tensor

from chomsky_ladder.harness.config.parts import require
from chomsky_ladder.harness.inside.automata import machine_of
from chomsky_ladder.harness.inside.streams import Trained
from chomsky_ladder.models.base import Model
from chomsky_ladder.models.bilinear_rnn import BilinearRecurrence
from chomsky_ladder.tasks.base import Task
from chomsky_ladder.tasks.draw import Draw

ALIKE = 0.03  # the largest difference of exponents in a subspace, in natural logarithms a symbol
NEAR = 0.35  # the largest move of a symbol's matrix, relative to its norm
EXACT = 1e-9
_MOST_ELEMENTS, _MOST_ROUNDS = 1000, 30
_STRINGS, _WARM, _LENGTH = 8, 100, 400


class Group(NamedTuple):
    """The group that a task's symbols generate on its states."""

    symbols: tuple[int, ...]  # tokens
    of_symbol: tuple[int, ...]  # the element of each
    words: tuple[tuple[int, ...], ...]  # a shortest word of each element, as places in `symbols`; the neutral one first
    table_GG: Tensor  # [g, h]: g first, then h


class Kept(NamedTuple):
    """A subspace that the matrices of one block of the state keep."""

    block: int
    size: int
    moved: float  # the largest move of a symbol's matrix, relative to its norm; infinite if no representation is near
    rounded: bool
    character: float  # the mean square of the representation's character: 1 if it is irreducible over C


def group_of(task: Task) -> Group:
    """Return the group of a task. Raise ValueError if a symbol is no permutation of the states."""
    machine = machine_of(task)
    moves = [tuple(after[symbol] for after in machine.after) for symbol in machine.symbols]
    is_group = all(len(set(move)) == len(move) for move in moves)
    require(is_group, f"{task.name} has symbols that forget: no group acts on its states")
    neutral = tuple(range(len(machine.after)))
    words: dict[tuple[int, ...], tuple[int, ...]] = {neutral: ()}
    waiting = [neutral]
    for element in waiting:  # grows as it is read
        for place, move in enumerate(moves):
            product = tuple(move[state] for state in element)
            if product not in words:
                words[product] = (*words[element], place)
                waiting.append(product)
        require(len(words) <= _MOST_ELEMENTS, f"{task.name} has a group of more than {_MOST_ELEMENTS} elements")
    number = {element: index for index, element in enumerate(words)}
    table = [[number[tuple(h[state] for state in g)] for h in words] for g in words]
    return Group(machine.symbols, tuple(number[move] for move in moves), tuple(words.values()), torch.tensor(table))


def representation(near_SRR: Tensor, group: Group) -> Tensor | None:
    """Return the exact representation that the matrices of symbols are near, up to factors. None if there is none.

    Its matrices have determinants of 1 or -1, and multiply as the group does, up to signs.
    """
    unit_SRR = _unit(near_SRR)
    M_GRR = torch.stack([_product(unit_SRR, word) for word in group.words])
    for _ in range(_MOST_ROUNDS):
        back_GRR = torch.linalg.inv(M_GRR)
        said_HGRR = M_GRR[group.table_GG] @ back_GRR[:, None]  # M(hg) M(h)^-1: what each h says of each g
        said_HGRR = said_HGRR * _sign(said_HGRR, back_GRR)
        off = (said_HGRR - M_GRR).abs().amax()
        if off < EXACT:
            exact_SRR = M_GRR[list(group.of_symbol)]
            return exact_SRR * _sign(unit_SRR, torch.linalg.inv(exact_SRR))
        if not off.isfinite():
            break
        M_GRR = _unit(said_HGRR.mean(0))
    return None


def _sign(M_XRR: Tensor, back_XRR: Tensor) -> Tensor:
    """Return the sign with which matrices agree with others, given by their inverses, [.., 1, 1]."""
    return torch.einsum("...ij,...ji->...", M_XRR, back_XRR).sign()[..., None, None]


def _unit(M_XRR: Tensor) -> Tensor:
    """Return matrices scaled to determinants of 1 or -1."""
    return M_XRR / torch.linalg.det(M_XRR).abs().pow(1 / M_XRR.shape[-1])[..., None, None]


def _product(M_SRR: Tensor, word: Sequence[int]) -> Tensor:
    product_RR = torch.eye(M_SRR.shape[-1], dtype=M_SRR.dtype)
    for place in word:
        product_RR = M_SRR[place] @ product_RR
    return product_RR


def subspaces(A_SHKK: Tensor) -> list[Tensor]:
    """Return a basis [K, R] of the subspace that states of each block approach, R of the largest exponents alike."""
    return _approached(A_SHKK[place_B] for place_B in _places(len(A_SHKK)).T)


def _places(num_symbols: int) -> Tensor:
    """Draw random strings of symbols, by their places."""
    return Draw(seed=0, split="rounding", rows_B=torch.arange(_STRINGS)).integers(num_symbols, (_WARM + _LENGTH,))


def _approached(A_LBHKK: Iterable[Tensor]) -> list[Tensor]:
    """Return the subspaces for matrices that follow each other on strings."""
    Q_BHKK, grown_HK, spread_HRKK = torch.zeros(()), torch.zeros(()), torch.zeros(())
    for step, A_BHKK in enumerate(A_LBHKK):
        Q_BHKK, R_BHKK = torch.linalg.qr(A_BHKK @ Q_BHKK if step else A_BHKK)
        if step >= _WARM:
            grown_HK = grown_HK + R_BHKK.diagonal(dim1=-2, dim2=-1).abs().log().mean(0) / _LENGTH
            spread_HRKK = spread_HRKK + torch.einsum("bhkr,bhlr->hrkl", Q_BHKK, Q_BHKK)
    alike_H = (grown_HK > grown_HK[:, :1] - ALIKE).sum(1).tolist()
    return [
        torch.linalg.eigh(spread_RKK[:alike].sum(0)).eigenvectors[:, -alike:]
        for alike, spread_RKK in zip(alike_H, spread_HRKK, strict=True)
    ]


@torch.no_grad()
def kept_deeper(trained: Trained) -> list[int]:
    """Return the sizes of the subspaces that bilinear layers behind the first keep. They are not rounded.

    Their matrices depend on the layers before, too, so they are read while the model reads random strings.
    """
    symbol_S = torch.tensor(group_of(trained.run.task).symbols)
    found: list[int] = []
    for layer in _layers(trained.model)[1:]:
        read: list[Tensor] = []
        hook = layer.transition.register_forward_hook(lambda _, inputs, A_BLX, read=read: read.append(A_BLX))
        trained.model(symbol_S[_places(len(symbol_S))])
        hook.remove()
        blocks, size = layer.start_HK.shape
        A_BLHKK = torch.cat(read, 1).double().unflatten(-1, (blocks, size, size))
        found += [basis_KR.shape[1] for basis_KR in _approached(A_BLHKK.unbind(1)) if basis_KR.shape[1] > 1]
    return found


class _Read(NamedTuple):
    """A model's first bilinear layer, and what it does at each symbol of a group."""

    layer: BilinearRecurrence
    group: Group
    x_SD: Tensor
    A_SHKK: Tensor


def _read(model: Model, task: Task) -> _Read:
    group, layer = group_of(task), _layers(model)[0]
    x_SD = _inputs(model, layer, group.symbols).double()
    blocks = layer.start_HK.shape
    A_SHKK = layer.transition(x_SD.to(layer.transition.weight.dtype)).double().unflatten(-1, (*blocks, blocks[1]))
    return _Read(layer, group, x_SD, A_SHKK)


@torch.no_grad()
def rounded(trained: Trained) -> tuple[Trained, list[Kept]]:
    """Return a trained model with its first block rounded, and what was found in it."""
    model = deepcopy(trained.model)
    layer, group, x_SD, A_SHKK = _read(model, trained.run.task)
    new_SHKK, found = A_SHKK.clone(), list[Kept]()
    for block, basis_KR in enumerate(subspaces(A_SHKK)):
        if (size := basis_KR.shape[1]) < 2:
            continue
        near_SRR = basis_KR.T @ A_SHKK[:, block] @ basis_KR
        exact_SRR = representation(near_SRR, group)
        moved = float("inf") if exact_SRR is None else _moved(near_SRR, exact_SRR)
        character = float("nan") if exact_SRR is None else _mean_square_character(exact_SRR, group)
        found.append(Kept(block, size, moved, moved <= NEAR, character))
        if exact_SRR is not None and moved <= NEAR:
            length_S11 = torch.linalg.det(near_SRR).abs().pow(1 / size)[:, None, None]
            onto_KK = basis_KR @ basis_KR.T
            new_SHKK[:, block] += basis_KR @ (exact_SRR * length_S11) @ basis_KR.T - A_SHKK[:, block] @ onto_KK
    change_SX = (new_SHKK - A_SHKK).flatten(1)
    layer.transition.weight += (torch.linalg.pinv(x_SD) @ change_SX).T.to(layer.transition.weight.dtype)
    return trained._replace(model=model), found


class Orbit(NamedTuple):
    """The states of one block on a random string, in its subspace, as trained and rounded."""

    element_L: Tensor  # the product so far, by its number in the group
    trained_LR: Tensor
    rounded_LR: Tensor


@torch.no_grad()
def orbit(trained: Trained, kept: Kept, *, length: int) -> Orbit:
    """Return a block's states of length 1, in coordinates in which the exact representation turns and mirrors alone."""
    layer, group, _, A_SHKK = _read(trained.model, trained.run.task)
    basis_KR = subspaces(A_SHKK)[kept.block]
    near_SRR = basis_KR.T @ A_SHKK[:, kept.block] @ basis_KR
    exact_SRR = representation(near_SRR, group)
    assert exact_SRR is not None
    all_GRR = torch.stack([_product(exact_SRR, word) for word in group.words])
    straight_RR = torch.linalg.cholesky((all_GRR.mT @ all_GRR).mean(0)).T
    draw = Draw(seed=1, split="rounding", rows_B=torch.arange(1))
    (place_L,) = draw.integers(len(group.symbols), (length,))
    element, elements = 0, list[int]()
    for place in place_L.tolist():
        element = int(group.table_GG[element, group.of_symbol[place]])
        elements.append(element)
    start_R = basis_KR.T @ layer.start_HK[kept.block].double()
    ways = (_went(matrices_SRR, start_R, place_L, straight_RR) for matrices_SRR in (near_SRR, exact_SRR))
    return Orbit(torch.tensor(elements), *ways)


def _went(M_SRR: Tensor, state_R: Tensor, place_L: Tensor, straight_RR: Tensor) -> Tensor:
    states = []
    for place in place_L.tolist():
        state_R = M_SRR[place] @ state_R
        state_R = state_R / state_R.norm()
        states.append(straight_RR @ state_R)
    return torch.nn.functional.normalize(torch.stack(states), dim=-1)


def _mean_square_character(M_SRR: Tensor, group: Group) -> float:
    traces = [float(_product(M_SRR, word).trace()) for word in group.words]
    return sum(trace**2 for trace in traces) / len(traces)


def _moved(near_SRR: Tensor, exact_SRR: Tensor) -> float:
    return float(((_unit(near_SRR) - exact_SRR).norm(dim=(1, 2)) / exact_SRR.norm(dim=(1, 2))).max())


def _layers(model: Model) -> list[BilinearRecurrence]:
    """Return a model's bilinear recurrences, in order. Raise ValueError if it has none."""
    found = [part for part in model.modules() if isinstance(part, BilinearRecurrence)]
    require(bool(found), f"{model.config.name} has no bilinear recurrence: there are no matrices to round")
    return found


def _inputs(model: Model, layer: BilinearRecurrence, symbols: tuple[int, ...]) -> Tensor:
    """Return what a layer reads for each symbol, [S, D]. Raise ValueError if that depends on the symbols before."""
    kept: list[Tensor] = []
    hook = layer.transition.register_forward_pre_hook(lambda _, inputs: kept.append(inputs[0]))
    token_S = torch.tensor(symbols)
    model(torch.stack([token_S, token_S.roll(1), token_S], 1))
    hook.remove()
    (read_S3D,) = kept
    alone = torch.allclose(read_S3D[:, 0], read_S3D[:, 2])
    require(
        alone, f"{model.config.name} reads symbols before each: its first matrices do not depend on one symbol alone"
    )
    require(len(symbols) <= read_S3D.shape[-1], f"{len(symbols)} symbols are more than the width {read_S3D.shape[-1]}")
    return read_S3D[:, 0]
