"""The names of models in tables and figures: xLSTM[0:1], DeltaNet [-1,1], LSTM (d_model=32).

    model_name  settings                                     label                              title
    xlstm       {"model.ratio":"0:1"}                        xlstm (ratio=0:1)                  xLSTM[0:1]
    delta_net   {"model.eigenvalues":"signed"}               delta_net (eigenvalues=signed)     DeltaNet [-1,1]

A title is written in the model's own file (`ModelConfig.title`). scripts/golden.py copies the titles of the harness'
models to titles.json beside this file, with the usual values of their settings, because nothing here needs torch. A
model that is not in there is shown by its label. Data and commands use labels, which are complete. A hybrid of many
settings may have a name of its own (`known_as`).
"""

import json
import string
from functools import cache
from pathlib import Path
from typing import Any

from chomsky_ladder.harness.store.labels import Identity

FILE = Path(__file__).with_name("titles.json")

SHOWN = {"eigenvalues": {"positive": "", "signed": " [-1,1]"}}  # settings that papers do not write out


def title_of(identity: Identity) -> str:
    """Return the title of a record's model. Settings that the title lacks follow in brackets, as in a label."""
    known = _titles().get(identity.model_name)
    if known is None:
        return identity.model
    if own := _own_name(identity, known):
        return own
    rest = identity.model_parts(*known["usual"]).changes
    return f"{name_of(identity)} ({rest})" if rest else name_of(identity)


def name_of(identity: Identity) -> str:
    """Return the title without further settings."""
    known = _titles().get(identity.model_name)
    if known is None:
        return identity.model_name
    if name := _own_name(identity, known):
        return name
    own = dict(known["usual"]) | identity.of_model()
    title = known["title"].format(**{name: SHOWN.get(name, {}).get(own[name], own[name]) for name in known["usual"]})
    version = own.get("version", 1)
    return title if version == 1 else f"{title} v{version}"


def _own_name(identity: Identity, known: dict[str, Any]) -> str:
    """Return the name that a model has with exactly these settings, or ""."""
    return next((name for name, settings in known.get("known_as", {}).items() if settings == identity.of_model()), "")


def settings_of(title: str) -> list[str]:
    """Return the settings that a title contains."""
    return [name for _, name, *_ in string.Formatter().parse(title) if name]


def content_of(models: dict[str, Any]) -> bytes:
    """Return the bytes of titles.json, given models by name: classes with a `title`, or "" for those without."""
    found = {
        name: {"title": cls.title, "usual": {setting: getattr(cls(), setting) for setting in settings_of(cls.title)}}
        | ({"known_as": cls.known_as} if cls.known_as else {})
        for name, cls in sorted(models.items())
        if cls.title
    }
    return (json.dumps(found, indent=1, ensure_ascii=False) + "\n").encode()


@cache
def _titles() -> dict[str, Any]:
    return json.loads(FILE.read_text("utf-8"))
