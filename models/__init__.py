"""Sequence models, one file each, and the names you need to write your own:

    from chomsky_ladder.models import Layer, ModelConfig, Residual, SwiGLU, register, wrap

Each name is imported from its own file on first use. Models themselves are found by name (`ladder list`).
"""

from typing import TYPE_CHECKING

from chomsky_ladder.face import face

if TYPE_CHECKING:
    from chomsky_ladder.models.base import ModelConfig, register
    from chomsky_ladder.models.block import Block, Context, State
    from chomsky_ladder.models.layers.attention import Attention
    from chomsky_ladder.models.layers.convolution import ShortConvolution
    from chomsky_ladder.models.layers.feed_forward import MLP, SwiGLU, swiglu_width
    from chomsky_ladder.models.layers.residual import Layer, OneForm, Residual
    from chomsky_ladder.models.operations.diagonal import diagonal_scan
    from chomsky_ladder.models.plain import plain_model, wrap
    from chomsky_ladder.models.scans.delta import delta_rule
    from chomsky_ladder.models.scans.gated_delta import gated_delta_rule
    from chomsky_ladder.models.scans.generalised_delta import generalised_delta_rule

__all__ = [
    "MLP",
    "Attention",
    "Block",
    "Context",
    "Layer",
    "ModelConfig",
    "OneForm",
    "Residual",
    "ShortConvolution",
    "State",
    "SwiGLU",
    "delta_rule",
    "diagonal_scan",
    "gated_delta_rule",
    "generalised_delta_rule",
    "plain_model",
    "register",
    "swiglu_width",
    "wrap",
]

_HOMES = {
    "models.base": ("ModelConfig", "register"),
    "models.block": ("Block", "Context", "State"),
    "models.layers.attention": ("Attention",),
    "models.layers.convolution": ("ShortConvolution",),
    "models.layers.feed_forward": ("MLP", "SwiGLU", "swiglu_width"),
    "models.layers.residual": ("Layer", "OneForm", "Residual"),
    "models.operations.diagonal": ("diagonal_scan",),
    "models.plain": ("plain_model", "wrap"),
    "models.scans.delta": ("delta_rule",),
    "models.scans.gated_delta": ("gated_delta_rule",),
    "models.scans.generalised_delta": ("generalised_delta_rule",),
}

__getattr__, __dir__ = face(__name__, _HOMES)
