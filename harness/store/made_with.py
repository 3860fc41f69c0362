"""The plugins that made a run, as a record names them: `model rm of rm.py e6ea1c0d2f84`, separated by semicolons."""

import re
from collections.abc import Mapping

RAISE = "raise its version (`version = 2` in its class, `version=2` for wrap and plain_model)"


def sources_text(plugins: Mapping[str, Mapping[str, str]]) -> str:
    """Return the column `sources` from a run's provenance; "" if it used no plugins."""
    parts = [(name, made) for name, made in sorted(plugins.items()) if not name.startswith("kernel ")]
    return "; ".join(f"{name} of {made['from']} {made['sha256']}" for name, made in parts)


def made_from(sources: str) -> list[tuple[str, str, str]]:
    """Return each plugin of a record's sources, as ("model rm", "rm.py", "e6ea1c0d2f84")."""
    return re.findall(r"(.+?) of (.+?) (\w+)(?:; |$)", sources)
