"""The look of a model in every figure and on the page: a colour by its family, a shade and a marker by its name.

    looks(["lstm", "xlstm (ratio=0:1)"])      both blue, of other shades, markers and dashes

A look depends on the label alone, so a model looks the same beside any others. Settings change the marker and the dash,
never the colour. A plugin's model is grey, with a marker by its name. If two models of a picture have the same look,
the later one takes the next free marker. Base colours are Okabe and Ito's, which colour-blind readers can distinguish,
and three more for small families. Nothing here needs torch or matplotlib.
"""

import zlib
from collections.abc import Iterable
from typing import NamedTuple

from chomsky_ladder.harness.store.labels import Identity

COLOURS = {
    "recurrent": "#0072B2",
    "attention": "#D55E00",
    "state space": "#009E73",
    "linear attention": "#E69F00",
    "linear recurrence": "#56B4E9",
    "delta rule": "#CC79A7",
    "memory": "#7A5195",
    "convolution": "#8C6D31",
    "hybrid": "#6B6B6B",
}
MEMBERS = {
    "recurrent": ("lstm", "gru", "xlstm", "lstm_block", "rnn", "xlstm_large", "m2rnn", "para_rnn", "psm"),
    "attention": (
        *("transformer", "sliding_window", "moe", "encoder", "encoder_decoder", "prefix_lm"),
        *("fox", "stick_breaking", "path_attention", "deltaformer", "looped_transformer", "stack_attention"),
        "diff_transformer",
    ),
    "state space": ("mamba", "mamba2", "mamba3", "s4", "h3", "log_linear_attention", "d_linoss", "fp_mamba"),
    "linear attention": ("gla", "retention", "hgrn2", "gated_slot_attention", "mesa_net", "linear_attention", "based"),
    "linear recurrence": (
        *("slice", "min_gru", "min_lstm", "hgrn", "rwkv4", "rwkv5", "rwkv6", "pd_ssm", "rg_lru", "bd_lru"),
        "bilinear_rnn",
    ),
    "delta rule": (
        *("delta_net", "gated_delta_net", "gated_delta_product", "rwkv7", "kda", "gated_delta_net2", "comba"),
        *("ttt_linear", "titans", "momentum_deltanet", "preconditioned_delta_net"),
    ),
    "memory": ("stack_rnn", "tape_rnn", "ntm", "dnc", "rns_rnn"),
    "convolution": ("hyena",),
    "hybrid": ("hybrid", "autoencoder"),
}
"""The models of each family, the most frequent in tables first. New ones go last: others would change their look."""
FAMILY = {name: family for family, names in MEMBERS.items() for name in names}
VARIANTS = ("eigenvalues=signed", "ratio=0:1", "ratio=1:0", "ratio=1:1")
"""Settings that papers name. Other settings get a place by their hash."""
OTHER = "other"

MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "p", "h")  # matplotlib's names
_DASHES = ("-", "--", ":", "-.")
_SHADES = (0.0, -0.38, 0.36)  # towards black, towards white


class Look(NamedTuple):
    color: str
    marker: str
    linestyle: str


def looks(models: Iterable[str]) -> dict[str, Look]:
    """Return the look of models by their labels; no two of the first 297 share colour and marker."""
    found: dict[str, Look] = {}
    for model in sorted(set(models)):
        wanted = look(model)
        start, taken = MARKERS.index(wanted.marker), {one[:2] for one in found.values()}
        turns = [MARKERS[(start + step) % len(MARKERS)] for step in range(len(MARKERS))]
        free = ((colour, turn) for colour in (wanted.color, *_ALL) for turn in turns if (colour, turn) not in taken)
        colour, marker = next(free, wanted[:2])
        found[model] = Look(colour, marker, wanted.linestyle)
    return found


def family_of(model: str) -> str:
    """Return the family of a model by its label."""
    return FAMILY.get(Identity.of({"protocol": "", "task": "", "model": model}).model_name, OTHER)


def look(model: str) -> Look:
    """Return the look that a model has by its label alone."""
    told = Identity.of({"protocol": "", "task": "", "model": model})
    name, changes = told.model_name, told.model_parts().changes
    family = FAMILY.get(name, OTHER)
    place = MEMBERS[family].index(name) if name in FAMILY else _hashed(name)
    moved = _variant(changes)
    colour = shaded(COLOURS.get(family, "#4D4D4D"), _SHADES[place % len(_SHADES)])
    marker = MARKERS[(place + 4 * moved) % len(MARKERS)]
    return Look(colour, marker, _DASHES[(place // len(_SHADES) + moved) % len(_DASHES)])


def _variant(changes: str) -> int:
    if not changes:
        return 0
    return 1 + (VARIANTS.index(changes) if changes in VARIANTS else len(VARIANTS) + _hashed(changes) % 7)


def _hashed(text: str) -> int:
    """Return a hash that is the same in every process."""
    return zlib.crc32(text.encode())


def shaded(colour: str, by: float) -> str:
    """Move a colour towards black by a negative share, towards white by a positive one."""
    end = 255 if by > 0 else 0
    parts = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    return "#" + "".join(f"{round(part + abs(by) * (end - part)):02X}" for part in parts)


_ALL = tuple(shaded(colour, by) for by in _SHADES for colour in COLOURS.values())
