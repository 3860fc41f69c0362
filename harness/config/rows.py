"""The models of the reference tables, each with its settings, in the order in which they are run.

rows_of("climb-v2")      the seeds' models first, then the contested, then the others
"""

from typing import Any

Row = tuple[str, dict[str, Any]]

_BOTH: Row = (
    "hybrid",
    {"short_conv": 4, "pattern": "bilinear_rnn,transformer", "settings": "transformer: positions=none"},
)

ROWS: tuple[Row, ...] = (
    ("lstm", {}),
    ("transformer", {}),
    ("xlstm", {"ratio": "0:1"}),
    ("gru", {}),
    ("mamba", {}),
    ("xlstm", {"ratio": "1:0"}),
    ("delta_net", {"eigenvalues": "signed"}),
    ("rnn", {}),
    ("slice", {}),
    ("mamba2", {}),
    ("gated_delta_net", {}),
    ("xlstm", {}),  # 1:1
    ("gated_delta_product", {"eigenvalues": "signed"}),
    ("s4", {}),
    ("mamba", {"eigenvalues": "signed"}),
    ("rwkv7", {}),
    ("mamba3", {}),
    ("stack_rnn", {}),
    ("min_gru", {}),
    ("gla", {}),
    ("delta_net", {}),
    ("retention", {}),
    ("lstm_block", {}),
    ("sliding_window", {}),
    ("min_lstm", {}),
    ("hgrn2", {}),
    ("rwkv6", {}),
    ("gated_delta_net", {"eigenvalues": "signed"}),
    ("tape_rnn", {}),
    ("hybrid", {}),
    ("hgrn", {}),
    ("rwkv5", {}),
    ("rwkv4", {}),
    ("h3", {}),
    ("hyena", {}),
    ("moe", {}),
    ("ntm", {}),
    ("dnc", {}),
    ("fox", {}),
    ("stick_breaking", {}),
    ("path_attention", {}),
    ("deltaformer", {}),
    ("xlstm_large", {}),
    ("pd_ssm", {}),
    ("kda", {}),
    ("gated_delta_net2", {}),
    ("comba", {}),
    ("m2rnn", {}),
    ("looped_transformer", {}),
    ("gated_slot_attention", {}),
    ("mesa_net", {}),
    ("ttt_linear", {}),
    ("titans", {}),
    ("log_linear_attention", {}),
    _BOTH,
)

_SIGNED = {"eigenvalues": "signed"}
_SEEDS: tuple[Row, ...] = (
    ("transformer", {"positions": "none"}),
    ("transformer", {}),
    ("transformer", {"positions": "alibi"}),
    ("transformer", {"positions": "fire"}),
    ("sliding_window", {}),
    ("moe", {}),
    ("mamba", {}),
    ("mamba2", {}),
    ("xlstm", {"ratio": "1:0"}),
    ("xlstm", {"ratio": "0:1"}),
    ("xlstm", {}),  # 1:1
    ("lstm", {}),
    ("lstm_block", {}),
    ("retention", {}),
    ("hyena", {}),
    ("rwkv4", {}),
    ("rwkv5", {}),
    ("rwkv6", {}),
)
_CONTESTED: tuple[Row, ...] = (
    ("pd_ssm", {}),
    ("slice", {}),
    ("delta_net", _SIGNED),
    ("gated_delta_net", _SIGNED),
    ("gated_delta_product", _SIGNED),
    ("rwkv7", {}),
    ("mamba3", {}),
    ("path_attention", {}),
    ("m2rnn", {}),
    ("stack_rnn", {}),
    ("hybrid", {}),
    _BOTH,
)
_FIRST = (*_SEEDS, *_CONTESTED)
SECOND: tuple[Row, ...] = (*_FIRST, *(row for row in ROWS if row not in _FIRST))

DECISIVE: tuple[Row, ...] = (
    ("xlstm", {}),
    ("lstm", {}),
    ("pd_ssm", {}),
    ("transformer", {"positions": "none"}),
    ("xlstm", {"ratio": "0:1"}),
    ("delta_net", _SIGNED),
    ("gated_delta_product", _SIGNED),
    ("path_attention", {}),
)
"""Models whose cells decide most questions, on the rungs named here."""
DECISIVE_RUNGS = ("compose A5", "recall", "count mod 2", "count mod 3", "nest", "count")


def rows_of(protocol: str) -> tuple[Row, ...]:
    """Return the models that a climb's table shows."""
    return SECOND if protocol == "climb-v2" else ROWS
