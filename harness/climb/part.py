"""A part of a climb: some of its rungs, fewer seeds, or fewer steps. Its card says so and has no models beside it.

    Part.of(protocol, rungs="parity,sort", seeds=1, steps=200)      2 of 12 rungs, 1 seed of 3, 200 steps of 2,000

Leaving out rungs or seeds does not change the runs: a later whole climb reuses them, and a part reuses those of a whole
climb. Other steps make other runs, which records hold under their own protocol label.
"""

from dataclasses import dataclass

from chomsky_ladder.harness.config.protocol import Protocol, Rung
from chomsky_ladder.harness.config.rooms import did_you_mean


@dataclass(frozen=True)
class Part:
    rungs: tuple[Rung, ...]
    seeds: int
    report: int
    """Fresh seeds besides those; 0 if the protocol reports the seeds that choose."""
    steps: int
    """Training steps; 0 for the protocol's."""
    about: str
    """A description of what is left out; "" if nothing is."""

    @classmethod
    def of(cls, protocol: Protocol, *, rungs: str = "", seeds: int = 0, steps: int = 0) -> "Part":
        """Make the requested part. 0 and "" keep the protocol's values."""
        if seeds < 0:
            raise ValueError(f"--seeds is how many, 0 for the protocol's, not {seeds}")
        if steps < 0:
            raise ValueError(f"--steps is how many, 0 for the protocol's, not {steps}")
        found, usual = _found(protocol, rungs), protocol.train["steps"]
        steps, all_seeds = 0 if steps == usual else steps, protocol.report or protocol.seeds
        seeds = seeds or all_seeds
        words = [f"{len(found)} of {len(protocol.rungs)} rungs"]
        words += [f"{seeds} seed{'' if seeds == 1 else 's'} of {all_seeds}"] if seeds < all_seeds else []
        words += [f"{steps:,} steps of {usual:,}"] if steps else []
        is_whole = len(found) == len(protocol.rungs) and len(words) == 1
        about = "" if is_whole else ", ".join(words)
        chosen, report = (protocol.seeds, seeds) if protocol.report else (seeds, 0)
        return cls(found, chosen, report, steps, about)

    @property
    def key(self) -> str:
        """Return the name that distinguishes it from other parts."""
        steps = [f"{self.steps} steps"] if self.steps else []
        return " ".join([*(rung.name for rung in self.rungs), f"{self.report or self.seeds} seeds", *steps])


def _found(protocol: Protocol, words: str) -> tuple[Rung, ...]:
    """Return the rungs with these names, or of these tasks, in the protocol's order."""
    asked = {word.strip() for word in words.split(",") if word.strip()}
    names = {name: rung for rung in protocol.rungs for name in (rung.name, rung.name.replace(" ", "-"))}
    known = {*names, *(rung.task for rung in protocol.rungs)}
    for word in sorted(asked - known):
        there = f"; there are {', '.join(rung.name for rung in protocol.rungs)}"
        raise ValueError(
            f"--rungs: no rung or task of the climb is called {word!r}{did_you_mean(word, known) or there}"
        )
    chosen = [names[word] for word in asked & names.keys()]
    return tuple(rung for rung in protocol.rungs if not asked or rung in chosen or rung.task in asked)
