"""The uncertainty of a finite test: Wilson's 95 % interval of an accuracy, given the number of strings.

    wilson(.95, 150)        (.903, .975)

The number of strings counts, not of answers, since answers of one string may be right or wrong together. If a string
has several answers, the interval is rather too wide. Wilson 1927.
"""

import math
from statistics import NormalDist

_Z = NormalDist().inv_cdf(0.975)


def wilson(share: float, strings: float) -> tuple[float, float]:
    """Return the interval of the accuracy on all strings of the kind, from the accuracy on some."""
    if strings <= 0:
        raise ValueError("an interval needs a string or more")
    centre = (share + _Z**2 / (2 * strings)) / (1 + _Z**2 / strings)
    reach = _Z * math.sqrt(share * (1 - share) / strings + (_Z / (2 * strings)) ** 2) / (1 + _Z**2 / strings)
    return max(0.0, centre - reach), min(1.0, centre + reach)
