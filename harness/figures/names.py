"""Names of figures' files and folders, for those who write and those who read them."""

import hashlib
import re

PICTURES = "pictures.json"


def folder_name(protocol: str) -> str:
    """Return the protocol's label where it is a plain word, else its readable part and a hash of the whole."""
    if re.fullmatch(r"[a-z0-9_]+", protocol):
        return protocol
    plain = re.sub(r"[^a-z0-9_]+", "-", protocol.lower())[:40].strip("-")
    return f"{plain}-{hashlib.sha256(protocol.encode()).hexdigest()[:8]}"
