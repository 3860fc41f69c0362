"""Finite automata as values, run and sampled on whole batches without a loop over positions.

A string is a series of maps state -> state, one for each symbol. Maps compose associatively, so runs of 2, 4, 8 ..
symbols compose in parallel. Sampling works the same way. With a uniform integer drawn for each position, "the state
that follows s here" is also a map, and composing these maps gives the sampled path.

    parity = Automaton(transitions=((1, 0), (0, 1)), accepting=(False, True), alphabet="ab")
    symbols_BL, states_BL = random_path(parity, draw.integers(SCALE, (columns,)), size_B)      uniform over odd "a"s

The strings that lead to a target are counted in exact integers. A choice compares a uniform integer below SCALE with
thresholds. So each symbol has its exact probability up to 2**-31, and none of probability zero is ever taken.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from chomsky_ladder.tasks._kept import kept

SCALE = 2**31 - 1
"""Upper bound of the uniform integers that choose a path. Thresholds fit in 32 bits."""

WIDE = 257
"""Number of states from which on a path is followed position by position."""


@dataclass(frozen=True)
class Automaton:
    """A complete deterministic automaton that starts in state 0."""

    transitions: tuple[tuple[int, ...], ...]  # [state][symbol]
    accepting: tuple[bool, ...]
    alphabet: str
    weights: tuple[int, ...] = ()
    """The number of symbols that each one stands for, if not one (`grouped`)."""
    odds: tuple[int, ...] = ()
    """Factor on a string's weight for each visit to a state, its end included; for samples that are not uniform."""

    @property
    def num_states(self) -> int:
        return len(self.transitions)

    @property
    def num_symbols(self) -> int:
        return len(self.alphabet)

    def states(self, *, accepting: bool) -> frozenset[int]:
        return frozenset(state for state, accepts in enumerate(self.accepting) if accepts == accepting)


def letter_maps(automaton: Automaton, symbols_BL: Tensor) -> Tensor:
    """Return the map of each symbol, [B, L, N]. The symbol `num_symbols` is blank and changes nothing."""
    maps_KN = letters(automaton, symbols_BL.device)
    return maps_KN.index_select(0, symbols_BL.flatten()).unflatten(0, symbols_BL.shape)


@kept
def letters(automaton: Automaton, device: torch.device) -> Tensor:
    """Return the state after each symbol, then the identity, [K + 1, N]."""
    maps = np.concatenate([np.array(automaton.transitions).T, [np.arange(automaton.num_states)]])
    return torch.from_numpy(maps).to(device)


def composed(maps_BLN: Tensor) -> list[Tensor]:
    """Return the maps of single symbols, of pairs, of fours .. An odd one at the end has no pair."""
    levels = [maps_BLN]
    while levels[-1].shape[1] > 1:
        maps_BLN = levels[-1]
        levels.append(maps_BLN[:, 1::2].gather(2, maps_BLN[:, : maps_BLN.shape[1] // 2 * 2 : 2]))
    return levels


def states_along(levels: Sequence[Tensor], start_B: Tensor) -> Tensor:
    """Return the state before the first symbol and after each, [B, L + 1]."""
    states_BP = start_B[:, None]
    for maps_BLN in reversed(levels):  # the states between pairs are known, and those inside follow
        firsts_BLN = maps_BLN[:, ::2]
        before_BP, rest_BP = states_BP.tensor_split([firsts_BLN.shape[1]], dim=1)
        inside_BP = firsts_BLN.gather(2, before_BP[..., None])[..., 0]
        states_BP = torch.cat([torch.stack([before_BP, inside_BP], dim=2).flatten(1), rest_BP], dim=1)
    return states_BP


def sets_along(levels: Sequence[Tensor], final_BN: Tensor) -> Tensor:
    """Return the states from which the rest of the string leads into `final_BN` (bool), [B, L + 1, N]."""
    ends = [final_BN]
    for maps_BLN in levels:
        odd = maps_BLN.shape[1] % 2 == 1
        ends.append(ends[-1].gather(1, maps_BLN[:, -1]) if odd else ends[-1])
    sets_BPN = ends.pop()[:, None]
    for maps_BLN, end_BN in zip(reversed(levels), reversed(ends), strict=True):
        inside_BPN = sets_BPN[:, 1:].gather(2, maps_BLN[:, 1::2])
        before_BPN, last_BPN = sets_BPN.tensor_split([inside_BPN.shape[1]], dim=1)
        whole_BPN = torch.stack([before_BPN, inside_BPN], dim=2).flatten(1, 2)
        tail = [end_BN[:, None]] if maps_BLN.shape[1] % 2 == 1 else []
        sets_BPN = torch.cat([whole_BPN, last_BPN, *tail], dim=1)
    return sets_BPN


def random_path(
    automaton: Automaton,
    uniform_BL: Tensor,
    size_B: Tensor,
    *,
    targets: tuple[frozenset[int], ...] | None = None,
    target_B: Tensor | None = None,
    start_B: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Draw strings uniform over those of `size_B` symbols that lead from `start_B` into a state of targets[target_B].

    The `odds` of the automaton make some strings likelier. `uniform_BL` are uniform integers below SCALE, one for each
    position: `draw.integers(SCALE, (columns,))`. Without the other arguments, strings are uniform over those accepted.
    Returns the symbols (indices into the alphabet) [B, L], and the states before the first and after each [B, L + 1].
    Values beyond a string's size are meaningless. If no such string exists, some other string is returned: check with
    `count_paths` first.
    """
    zeros_B = torch.zeros_like(size_B)
    start_B = zeros_B if start_B is None else start_B
    target_B = zeros_B if target_B is None else target_B
    targets = (automaton.states(accepting=True),) if targets is None else targets
    columns, device = uniform_BL.shape[1], size_B.device
    if columns == 0:
        return uniform_BL, start_B[:, None]
    table = _thresholds(automaton, targets, rounded(columns), device)
    left_BL = (size_B[:, None] - 1 - torch.arange(columns, device=device)).clamp(min=0)
    row_BL = target_B[:, None] * (len(table) // len(targets)) + left_BL
    return walk(letters(automaton, device), table, row_BL, uniform_BL, start_B)


def walk(after_KN: Tensor, table: Tensor, row_BL: Tensor, uniform_BL: Tensor, start_B: Tensor) -> tuple[Tensor, Tensor]:
    """Return the symbols [B, L] that uniform integers choose, given the thresholds of all symbols but the last, and the
    states.

    Each position has a row of thresholds in the table [rows, K - 1, N]. With WIDE states or more, maps would fill the
    memory, so positions are followed one after the other.
    """
    uniform_BL = uniform_BL.to(torch.int32)
    if table.shape[2] >= WIDE:
        return _stepped(after_KN, table, row_BL, uniform_BL, start_B)
    thresholds_BLKN = table.index_select(0, row_BL.flatten()).unflatten(0, row_BL.shape)
    maps_BLN = after_KN[0].expand(*uniform_BL.shape, -1)
    for symbol in range(1, table.shape[1] + 1):
        passed_BLN = uniform_BL[..., None] >= thresholds_BLKN[:, :, symbol - 1]
        maps_BLN = torch.where(passed_BLN, after_KN[symbol], maps_BLN)
    states_BL = states_along(composed(maps_BLN), start_B)
    at_BLK1 = states_BL[:, :-1, None, None].expand(-1, -1, table.shape[1], -1)
    symbols_BL = (uniform_BL[..., None] >= thresholds_BLKN.gather(3, at_BLK1)[..., 0]).sum(2)
    return symbols_BL, states_BL


def _stepped(
    after_KN: Tensor, table: Tensor, row_BL: Tensor, uniform_BL: Tensor, state_B: Tensor
) -> tuple[Tensor, Tensor]:
    less_K, symbols, states = torch.arange(table.shape[1], device=table.device), [], [state_B]
    for row_B, uniform_B in zip(row_BL.unbind(1), uniform_BL.unbind(1), strict=True):
        symbol_B = (uniform_B[:, None] >= table[row_B[:, None], less_K, state_B[:, None]]).sum(1)
        state_B = after_KN[symbol_B, state_B]
        symbols.append(symbol_B)
        states.append(state_B)
    return torch.stack(symbols, dim=1), torch.stack(states, dim=1)


def rounded(columns: int) -> int:
    """Round up to a power of two, so that one table serves all smaller widths."""
    return max(64, 1 << (columns - 1).bit_length())


@kept
def _thresholds(
    automaton: Automaton, targets: tuple[frozenset[int], ...], columns: int, device: torch.device
) -> Tensor:
    """Return, for strings from a state into a target, the share of SCALE that begins with the first 1, 2 .. K-1
    symbols.

    int32 [targets * columns, K - 1, N], indexed by the number of symbols after this one.
    """
    table = np.zeros((len(targets), columns, automaton.num_symbols - 1, automaton.num_states), dtype=np.int32)
    for left, counts in enumerate(_counts(automaton, targets, columns)):
        shares = [weight * counts[:, after] for weight, after in steps(automaton)]
        table[:, left] = thresholds(np.stack(shares, axis=1))
    return torch.from_numpy(table).flatten(0, 1).to(device)


def thresholds(counts: np.ndarray) -> np.ndarray:
    """Return the share of SCALE that the first 1, 2 .. K-1 of K whole numbers make, along the axis before the last."""
    sums: Any = counts.cumsum(axis=-2)
    return sums[..., :-1, :] * SCALE // np.maximum(sums[..., -1:, :], 1)


def steps(automaton: Automaton) -> list[tuple[int, np.ndarray]]:
    """Return each symbol's weight and the states after it, [N]."""
    weights = automaton.weights or (1,) * automaton.num_symbols
    return list(zip(weights, np.array(automaton.transitions).T, strict=True))


@lru_cache(maxsize=64)
def count_paths(
    automaton: Automaton, targets: tuple[frozenset[int], ...], starts: tuple[int, ...], columns: int
) -> np.ndarray:
    """Count the strings of 0, 1 .. columns-1 symbols from a start into a target, Python's int [L, targets, S]."""
    return np.stack([counts[:, list(starts)] for counts in _counts(automaton, targets, columns)])


def _counts(automaton: Automaton, targets: tuple[frozenset[int], ...], columns: int) -> Iterator[np.ndarray]:
    """Yield the same counts from every state, one length after the other, [targets, N]."""
    counts: Any = np.array(
        [[int(state in target) for state in range(automaton.num_states)] for target in targets], dtype=object
    )
    odds_N = np.array(automaton.odds or (1,) * automaton.num_states, dtype=object)
    counts = counts * odds_N
    yield counts
    for _ in range(columns - 1):
        counts = odds_N * sum(weight * counts[:, after] for weight, after in steps(automaton))
        yield counts


def reachable(automaton: Automaton) -> Automaton:
    """Return the automaton without the states that the start does not reach, numbered breadth-first."""
    return _quotient(automaton, range(automaton.num_states))


def minimised(automaton: Automaton, *, most: int) -> Automaton | None:
    """Return the minimal automaton of the same language, numbered breadth-first; None if it has more than `most`
    states.

    Moore's refinement: classes of states are split until no symbol distinguishes two states of a class.
    """
    automaton = reachable(automaton)
    class_N = classes(np.array(automaton.transitions), np.array(automaton.accepting, dtype=np.int64), most=most)
    return None if class_N is None else _quotient(automaton, class_N.tolist())


def classes(transitions_NK: np.ndarray, class_N: np.ndarray, *, most: int) -> np.ndarray | None:
    """Return the coarsest refinement of the given classes in which every symbol maps classes to classes, numbered."""
    num = 0
    while num < (num := len(np.unique(class_N))):
        if num > most:
            return None
        rows = np.column_stack([class_N, class_N[transitions_NK]])
        class_N = np.unique(rows, axis=0, return_inverse=True)[1].reshape(-1)
    return class_N


@kept
def grouped(automaton: Automaton) -> tuple[Automaton, tuple[tuple[int, ...], ...]]:
    """Return the automaton with one symbol for all symbols that act alike, and the symbols that each one stands for."""
    found: dict[tuple[int, ...], list[int]] = {}
    for symbol, column in enumerate(zip(*automaton.transitions, strict=True)):
        found.setdefault(column, []).append(symbol)
    groups = tuple(map(tuple, found.values()))
    alphabet = "".join(automaton.alphabet[group[0]] for group in groups)
    weights = tuple(map(len, groups))
    rows = tuple(zip(*found, strict=True))
    return Automaton(rows, automaton.accepting, alphabet, weights, automaton.odds), groups


def _quotient(automaton: Automaton, class_of: Sequence[int]) -> Automaton:
    """Return the automaton of the classes that the start reaches, in breadth-first order, symbols in alphabet order."""
    found = {class_of[0]: 0}  # and one state of each, in the order of insertion
    for state in (queue := list(found.values())):
        for after in automaton.transitions[state]:
            if class_of[after] not in found:
                found[class_of[after]] = after
                queue.append(after)
    number = {name: index for index, name in enumerate(found)}
    rows = [automaton.transitions[state] for state in queue]
    return Automaton(
        transitions=tuple(tuple(number[class_of[after]] for after in row) for row in rows),
        accepting=tuple(automaton.accepting[state] for state in queue),
        alphabet=automaton.alphabet,
    )
