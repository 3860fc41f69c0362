"""Titles of models: those of the papers, whole, and the file of them as the models have them."""

import pytest

from chomsky_ladder.harness.climb.runs import climb_runs, climber
from chomsky_ladder.harness.config.protocols import identity_of
from chomsky_ladder.harness.config.registry import all_models, find_model
from chomsky_ladder.harness.config.rows import ROWS
from chomsky_ladder.harness.store.labels import Identity
from chomsky_ladder.harness.store.titles import FILE, content_of, title_of


@pytest.mark.parametrize(
    ("label", "title"),
    [
        ("xlstm", "xLSTM[1:1]"),
        ("xlstm (ratio=0:1)", "xLSTM[0:1]"),
        ("xlstm (ratio=0:1, d_model=32)", "xLSTM[0:1] (d_model=32)"),
        ("delta_net (eigenvalues=signed)", "DeltaNet [-1,1]"),
        ("delta_net v2", "DeltaNet v2"),
        ("mamba (d_state=4, eigenvalues=signed)", "Mamba [-1,1] (d_state=4)"),
        ("lstm_block", "LSTM (Block)"),
        ("a_plugins (width=3)", "a_plugins (width=3)"),
        ("<b>", "<b>"),
    ],
)
def test_a_title_tells_what_the_label_does(label: str, title: str) -> None:
    assert title_of(Identity.of({"protocol": "xlstm", "task": "parity", "model": label})) == title


def test_the_file_is_of_the_models_there_are() -> None:
    models = {name: found[0] for name, found in all_models().items()}
    own = {name: cls for name, cls in models.items() if cls.__module__.startswith("chomsky_ladder.")}
    assert FILE.read_bytes() == content_of(own), "run scripts/golden.py --missing"
    assert all(cls.title for cls in own.values()) and len({cls.title for cls in own.values()}) == len(own)


@pytest.mark.full
def test_every_row_of_the_reference_table_has_a_title_of_its_own() -> None:
    runs = [climb_runs(climber(find_model(name), changes))[0] for name, changes in ROWS]
    titles = [title_of(identity_of(run)) for run in runs]
    assert len(set(titles)) == len(ROWS) and not any("=" in title for title in titles)
