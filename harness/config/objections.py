"""The objections of a review of the theorems, entry by entry, and the answer to each.

    stack, nesting      the cited papers are empirical       accepted: a theorem is cited now
    slstm, parity       Merrill 2019 predates the sLSTM      answered: with its forget gate shut it is a simple RNN

The review of 2026 covered all 195 entries of harness/config/theorems.py. It objected to 28 of them and missed a theorem
on one model. Accepted: the mark, its condition or its source was changed. Answered: the mark stays, and the answer says
why. Tests verify the answers' claims on groups and networks. `read` says how much of the sources the review read. A
source read as an abstract alone may have conditions that are not named here.
"""

from dataclasses import dataclass
from typing import Literal

from chomsky_ladder.harness.config.theorems import Word

_REGULAR = "star-free", "parity", "cyclic", "solvable", "non-solvable"


@dataclass(frozen=True, kw_only=True)
class Objection:
    of: str
    """The transition."""
    demands: tuple[str, ...]
    models: tuple[str, ...] = ()
    """The models it is about; empty for all models with this transition."""
    said: str
    outcome: Literal["accepted", "answered"]
    answer: str
    now: Word
    """The mark today, for these models if any are named."""
    read: str


OBJECTIONS: tuple[Objection, ...] = (
    Objection(
        of="attention",
        demands=("star-free",),
        said="it needs strict masking or a temperature scaled by the length; the model run here has neither",
        outcome="accepted",
        answer="open: softmax imitates hard attention by unbounded positions or such a temperature alone",
        now="open",
        read="abstracts of 2310.13897 and 2412.09925",
    ),
    Objection(
        of="attention",
        demands=("non-solvable",),
        said="it hangs on TC0 and NC1 being different, and the mark does not say so",
        outcome="accepted",
        answer="the mark has a degree sign wherever the reason says unless TC0 = NC1",
        now="cannot",
        read="nothing new",
    ),
    Objection(
        of="looped attention",
        demands=("non-solvable",),
        said="the same condition",
        outcome="accepted",
        answer="the mark has a degree sign, too",
        now="cannot",
        read="nothing new",
    ),
    Objection(
        of="attention",
        demands=("reversal", "sorting"),
        said="RASP assumes the places' numbers and an encoder that sees both sides; the model run is causal, with RoPE",
        outcome="accepted",
        answer="open: for softmax of bounded scores over turned keys nothing is proven, causal or not",
        now="open",
        read="abstract and the introduction's beginning of 2106.06981",
    ),
    Objection(
        of="attention",
        demands=("copying",),
        said="it is open while reversal and sorting can by the same RASP, where copying is a constant offset",
        outcome="accepted",
        answer="all three are open now, for the same reason, and all three name RASP",
        now="open",
        read="abstract and the introduction's beginning of 2106.06981",
    ),
    Objection(
        of="attention",
        demands=("nesting",),
        said="the same RASP has programs for Dyck languages, and Chiang 2025 cites softmax attention for Dyck",
        outcome="accepted",
        answer="open stands, as for the others by RASP, and the reason names it; Chiang's sentence (2409.13629) is on "
        "the syntax of formulas, with one kind of bracket, where the rung asks which of two kinds closes",
        now="open",
        read="abstract of 2106.06981, introduction of 2409.13629",
    ),
    Objection(
        of="diagonal",
        demands=("majority", "counter"),
        models=("min_gru", "min_lstm", "hgrn2", "gated_slot_attention"),
        said="what is kept and what is added sum to 1 there, so no eigenvalue of 1 has an input beside it",
        outcome="accepted",
        answer="open for these four models",
        now="open",
        read="nothing new",
    ),
    Objection(
        of="fixed linear",
        demands=("majority", "counter"),
        models=("retention",),
        said="a count needs an eigenvalue of 1, and RetNet's decays are fixed below it",
        outcome="accepted",
        answer="open for RetNet",
        now="open",
        read="nothing new",
    ),
    Objection(
        of="generalised delta",
        demands=("parity",),
        models=("kda",),
        said="KDA's product of positive semi-definite matrices has no eigenvalue below 0, so it cannot (2411.12537)",
        outcome="accepted",
        answer="KDA cannot; the others keep RWKV-7's reason",
        now="cannot",
        read="nothing new",
    ),
    Objection(
        of="dense blocks",
        demands=("non-solvable",),
        said="blocks as large as the automaton, 60 for A5, where blocks have 4; true by a representation, uncited",
        outcome="accepted",
        answer="blocks of 4 do: permutations of five things act on the four differences by matrices of whole numbers, "
        "so that no rounding enters; a test counts the 60",
        now="can",
        read="abstract and appendix A's beginning of 2505.17761; the argument is ours",
    ),
    Objection(
        of="one-hot rows",
        demands=("non-solvable",),
        said="as many numbers as the group has elements, 60, where PD-SSM has 49; true by five points, uncited",
        outcome="accepted",
        answer="30 numbers with signs do in one layer, from the state (1, 0, ..): A5 on the cosets of a product of two "
        "swaps, which the sign tells apart; a test counts the 60",
        now="can",
        read="abstract of 2509.22284; the argument is ours",
    ),
    Objection(
        of="slstm",
        demands=_REGULAR,
        said="Merrill 2019 predates the sLSTM: how it holds a simple recurrent network should be written down",
        outcome="answered",
        answer="a forget gate at s(f) = 0 makes c / n = tanh(z), so h = s(o) tanh(W x + R h + b), a simple recurrent "
        "network in every head; a test follows A5 so in the heads of climb-v1, 21 numbers each",
        now="can",
        read="abstract and the introduction's beginning of 1906.01615; the equations of 2405.04517 in "
        "models/operations/slstm/reference.py",
    ),
    Objection(
        of="stack",
        demands=("majority", "counter", "nesting", "reversal"),
        said="the cited papers are empirical, there is no theorem",
        outcome="accepted",
        answer="Stogin et al. prove that a neural stack simulates every pushdown automaton",
        now="can",
        read="abstract of 2006.03651, version 4",
    ),
    Objection(
        of="tape",
        demands=("majority", "counter", "nesting", "reversal", "copying"),
        said="the cited paper is empirical, there is no theorem",
        outcome="accepted",
        answer="Stogin et al. prove that a neural tape simulates every Turing machine in real time",
        now="can",
        read="abstract of 2006.03651, version 4",
    ),
    Objection(
        of="",
        demands=("non-solvable",),
        models=("path_attention",),
        said="PaTH's own theorem, on a problem complete for NC1, is missing",
        outcome="accepted",
        answer="it is named; the mark is open, for the theorem is not of A5 and two layers",
        now="open",
        read="abstract of 2505.16381, and a summary of its theorem by others",
    ),
)
