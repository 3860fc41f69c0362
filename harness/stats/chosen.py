"""Select the records of a table: protocols, models and tasks, and the settings to compare side by side.

    chosen(records, models=["lstm", "xlstm*"])                 that label, else all of that name, or by a pattern
    beside(records, ["task.supervision"])                      parity      parity (supervision=dense)

A table never holds two protocols, and a task's layout and a run's training belong to the protocol's label. To compare
such a setting, `beside` removes it from that label. A setting of the task goes to the column's label, any other to the
row's.
"""

from collections.abc import Sequence
from fnmatch import fnmatchcase

import pandas as pd

from chomsky_ladder.harness.config.rooms import did_you_mean
from chomsky_ladder.harness.stats.rows import as_rows
from chomsky_ladder.harness.store.labels import Identity


def chosen(
    records: pd.DataFrame,
    *,
    protocols: Sequence[str] = (),
    models: Sequence[str] = (),
    tasks: Sequence[str] = (),
) -> pd.DataFrame:
    """Return the records selected by these words; all without words. Refuse a word that matches nothing."""
    kept = pd.Series(True, records.index)
    found_in = [Identity.of(row) for row in as_rows(records)]
    for part, words in (("protocol", protocols), ("model", models), ("task", tasks)):
        names = pd.Series([getattr(identity, f"{part}_name") for identity in found_in], records.index)
        found = pd.Series(not words, records.index)
        for word in words:
            of_word = records[part] == word
            for labels in (names, records[part]):
                if not of_word.any():
                    of_word = labels.map(lambda label, word=word: _is_of(label, word))
            if not of_word.any():
                there = sorted(set(records[part].astype(str)))
                hint = did_you_mean(word, there) or f"; there are {', '.join(there)}"
                raise ValueError(f"no record is of {part} {word!r}{hint}")
            found |= of_word
        kept &= found
    if not kept.any():
        raise ValueError("no record is of all that is asked for: protocol, models and tasks")
    return records[kept]


def _is_of(label: str, word: str) -> bool:
    return label == word or fnmatchcase(label, word.replace("[", "[[]"))


def beside(records: pd.DataFrame, settings: Sequence[str]) -> pd.DataFrame:
    """Return the same records with labels in which these settings are no part of the protocol."""
    found = [Identity.of(row) for row in as_rows(records)]
    known = sorted({name for identity in found for name in identity.settings})
    for setting in settings:
        if setting not in known:
            hint = did_you_mean(setting, known) or f"; there are {', '.join(known) or 'none'}"
            raise ValueError(f"no record differs from its protocol in {setting!r}{hint}")
    labels = [identity.beside(settings) for identity in found]
    return records.assign(**{part: [label[part] for label in labels] for part in ("protocol", "task", "model")})
