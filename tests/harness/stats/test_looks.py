"""A model has one look everywhere, families have colours of their own, and every model of the harness has a place."""

from chomsky_ladder.harness.config.registry import all_models
from chomsky_ladder.harness.config.rows import ROWS
from chomsky_ladder.harness.stats.looks import COLOURS, FAMILY, MEMBERS, look, looks


def test_every_model_has_its_family() -> None:
    built_in = {
        name: classes[0].family
        for name, classes in all_models().items()
        if classes[0].__module__.startswith("chomsky_ladder.models.")
    }
    assert built_in == FAMILY and set(MEMBERS) == set(COLOURS)


def test_a_look_hangs_on_the_label_alone() -> None:
    labels = [
        f"{name} ({', '.join(f'{k}={v}' for k, v in changes.items())})" if changes else name for name, changes in ROWS
    ]
    together = looks(labels)
    assert {model: look(model) for model in labels} == together  # nobody of the reference table has to give way
    assert len({one[:2] for one in together.values()}) == len(labels)
    assert look("xlstm (ratio=0:1)").color == look("xlstm").color != look("lstm").color


def test_who_would_look_like_another_gives_way() -> None:
    alike = [f"mine_{i}" for i in range(200)]
    assert len({one[:2] for one in looks(alike).values()}) == 200
    assert look("lstm v2 (d_model=8)").color == look("lstm").color
