"""The findings of hand-made climbs, sentence by sentence."""

from dataclasses import replace

from chomsky_ladder.harness.stats.climb import climbs_of
from chomsky_ladder.harness.stats.findings import findings
from support.pages import climb
from support.records_by_hand import frame

MODELS = ("lstm", "mamba", "mamba (eigenvalues=signed)", *(f"mine_{i}" for i in range(5)))


def test_findings_count_what_the_records_say() -> None:
    found = findings(climbs_of(frame(*climb(models=MODELS, whole=True)), "climb-v1"))
    assert [one.headline for one in found] == [
        "One of 8 models composes A5 on most seeds, one recalls, one does both.",
        "Models hold 12 cells at lengths 225 to 256, and learn 0 more at training lengths alone.",
        "Models hold 11 of the 21 cells that theory allows.",
        "None of one models with eigenvalues in [-1, 1] holds parity on most seeds.",
    ]
    assert found[0].more == "The one that does both is LSTM. Mamba comes next: recall on 0 of 3 seeds, A5 on 0 of 3."
    assert [one.more for one in found[1:]] == [
        "In the other 84 most seeds stay below 0.99 even at training lengths.",
        "Of the 3 that it excludes they hold 1, of 72 without a proof 0.",
        "None holds a cycle of three, S3 or A5. With [0, 1] none of one holds parity.",
    ]


def test_who_composes_a5_alone_is_told_of_apart() -> None:
    climbs = climbs_of(frame(*climb(models=MODELS, whole=True)), "climb-v1")
    lstm = next(one for one in climbs if one.model == "lstm")
    recall = next(step for step in lstm.steps if step.rung.name == "recall")
    forgets = replace(lstm, steps=tuple(replace(s, scores=(0.0,) * s.n) if s is recall else s for s in lstm.steps))
    (corner, *_) = findings([forgets, *(one for one in climbs if one is not lstm)])
    assert corner.headline == "One of 8 models composes A5 on most seeds, none recalls, none does both."
    assert corner.more.startswith("Those that compose A5 are nonlinear recurrences. LSTM comes nearest: ")


def test_few_models_make_no_finding() -> None:
    assert findings(climbs_of(frame(*climb(whole=True)), "climb-v1")) == []
    assert findings([]) == []
