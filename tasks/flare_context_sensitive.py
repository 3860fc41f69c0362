"""Is the string in this context-sensitive language of FLaRe? Copies, sorted strings, sums, products, roots.

    0 1 1 # 0 1 1  ->  YES        marked-copy
    0 1 1 # 0 0 1  ->  NO         a member after one edit

missing-duplicate-string: w w with a gap for one of its 1s. odds-first: w # w1 w3 .. w2 w4 .. bucket-sort: w # and w in
order. binary-addition and binary-multiplication: x + y = z and x * y = z. compute-sqrt: x = z, the root rounded down.
Numbers have the least bit first, and zeros after the highest bit are allowed. tasks/_flare.py lists the differences
from Butoi et al. 2024 (2411.07107). Two more: in binary-multiplication, a factor has at most as many bits as the other
leaves, while the paper allows any factor whose product has the right length. Roots are exact, while those of the
paper's long strings are not.
"""

from dataclasses import dataclass

from chomsky_ladder.tasks._flare import Flare
from chomsky_ladder.tasks.base import register


@register
@dataclass(frozen=True, kw_only=True)
class FlareContextSensitive(Flare):
    name, version, level = "flare_context_sensitive", 1, "context_sensitive"
    languages = (
        *("marked-copy", "missing-duplicate-string", "odds-first", "bucket-sort"),
        *("binary-addition", "binary-multiplication", "compute-sqrt"),
    )

    language: str = "marked-copy"
    """The language, by its published name."""
