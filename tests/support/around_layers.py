"""What stands around any model's layers is tried on these models, in these forms."""

from typing import Any

from chomsky_ladder.harness.conform import model as conform

SHAPES: dict[str, dict[str, Any]] = {  # a mixer, attention, a layer alone, no norm in front, loops, members
    "gla": {},
    "transformer": {},
    "mamba": {},
    "lstm": {},
    "looped_transformer": {"norm_place": "post"},
    "hybrid": {"pattern": "hgrn,lstm", "num_blocks": 4},
}
FORMS = (
    conform.the_future_never_changes_the_past,
    conform.stepping_equals_forward,
    conform.a_state_carries_over_a_split,
    conform.what_is_asked_alone_is_what_it_says_there,
    conform.stacked_replicas_equal_single_ones,
)
