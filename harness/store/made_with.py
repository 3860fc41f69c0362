"""What plugins a run was made with, as a record says it: `model rm of rm.py e6ea1c0d2f84`, separated by semicolons."""

import re
from collections.abc import Mapping

RAISE = "raise its version (`version = 2` in its class, `version=2` for wrap and plain_model)"


def sources_text(plugins: Mapping[str, Mapping[str, str]]) -> str:
    """Of what a run's provenance names; "" of ours alone."""
    parts = [(name, made) for name, made in sorted(plugins.items()) if not name.startswith("kernel ")]
    return "; ".join(f"{name} of {made['from']} {made['sha256']}" for name, made in parts)


def made_from(sources: str) -> list[tuple[str, str, str]]:
    """Each plugin of a record's sources, as ("model rm", "rm.py", "e6ea1c0d2f84")."""
    return re.findall(r"(.+?) of (.+?) (\w+)(?:; |$)", sources)
