"""The 1,800 languages of MLRegTest (van der Poel et al. 2024, 2304.07687) by name, built from their definitions.

    16.07.TLTT.4.2.0    16 symbols, of which 7 are on the tier; tier-based locally threshold testable, factors of 4
                        symbols counted up to 2, the first such language: four "a" in a row on the tier, twice

A name is alphabet, tier, class, width of factors, threshold, number. There are sixteen classes. SL and LT look for
factors, LTT counts them, PLT wants them in order, SP and PT look for subsequences. TSL, TLT, TLTT and TPLT do the same
on a tier. coSL, TcoSL and coSP are the complements of SL, TSL and SP. SF is star-free, Zp counts one symbol, and Reg
joins an even count with one of the others. Languages 5 to 9 of most classes are 0 to 4 with a condition on the first
symbols.

The automata equal those of the published files (github.com/heinz-jeffrey/subregular-learning), state by state: all
1,470 of them and the 330 complements, which have no file.
"""

from collections.abc import Callable, Iterator
from math import log2

from chomsky_ladder.tasks._automata import Automaton
from chomsky_ladder.tasks._kept import kept
from chomsky_ladder.tasks._subregular import Maker, Word, alike, both, either, on_tier, opposite, repeated, then

SYMBOLS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZáàǎéèěóòǒúùǔ"
SIZES = (4, 16, 64)
TOLD_APART = 12  # definitions treat symbols from here on alike, also their place on a tier

A, B, C, D = range(4)
Make = Callable[[], Automaton]


@kept
def language(name: str) -> Automaton:
    """Return the minimal automaton of a language, over its first symbols in the order above."""
    made, size = names()[name](), int(name[:2])
    columns = [min(symbol, made.num_symbols - 1) for symbol in range(size)]
    rows = tuple(tuple(row[column] for column in columns) for row in made.transitions)
    return Automaton(rows, made.accepting, SYMBOLS[:size])


@kept
def names() -> dict[str, Make]:
    """Return the functions that make each language, over the symbols that definitions distinguish."""
    return dict(_all())


def classes() -> tuple[str, ...]:
    return tuple(dict.fromkeys(name.split(".")[2] for name in names()))


def _all() -> Iterator[tuple[str, Make]]:
    for size in SIZES:
        defined = _Defined(size)
        for kind, made in {"Zp": defined.cyclic(), "SF": defined.star_free(), "Reg": defined.regular()}.items():
            for number, (width, threshold, make) in enumerate(made):
                yield f"{size:02}.{size:02}.{kind}.{width}.{threshold}.{number}", make
        for tier in (size, defined.few, 2 * defined.few - 1):
            if tier > 2:
                yield from defined.by_factors(tier)


class _Defined:
    """The definitions over an alphabet. Those of several symbols use `few` of them."""

    def __init__(self, size: int) -> None:
        self.size, self.few = size, int(log2(size))
        self.make = Maker(min(size, TOLD_APART))

    # Building blocks of the classes.

    def lacks(self, *words: Word) -> Automaton:
        return opposite(self.has(*words))

    def has(self, *words: Word) -> Automaton:
        return either(*(self.make.contains(word) for word in words))

    def any_follows(self, *words: Word) -> Automaton:
        return either(*(self.make.follows(word) for word in words))

    def no_run(self, symbols: int, width: int) -> Automaton:
        return self.lacks(*((symbol,) * width for symbol in range(symbols)))

    def no_turns(self, symbols: int, width: int, *, back: bool = False) -> Automaton:
        """Accept strings without a b a b .. of this width, without c d c d .., and, with `back`, without b a b a .."""
        pairs = [(first, first + 1) for first in range(0, symbols, 2)]
        pairs += [(second, first) for first, second in pairs if back]
        return self.lacks(*(pair * (width // 2) for pair in pairs))

    def turns(self, symbols: int, width: int, times: int) -> Automaton:
        """Accept strings with a b a b .. of this width, or c d c d .., this many times without overlap."""
        found = opposite(self.no_turns(symbols, width))
        return then(*[found] * times)

    def even(self) -> Automaton:
        return self.make.counted(self.few, 2, {0})

    def tiered(self, tier: int, made: Automaton) -> Automaton:
        return on_tier(made, lambda symbol: symbol < tier) if tier < self.size else made

    def started(self, width: int, makes: list[Make]) -> list[Make]:
        """Return the languages, then the same with the condition on the first symbols."""
        start = (A,) * (width - 1)
        return makes + [lambda make=make: both(self.make.starts(start), make()) for make in makes]

    # The classes.

    def cyclic(self) -> list[tuple[int, int, Make]]:
        counts = [(2, {0}), (2, {1}), (3, {0}), (3, {1}), (3, {2}), (3, {1, 2}), (3, {0, 2}), (3, {0, 1})]
        counts += [(5, {0}), (5, {0, 1, 2})]
        return [(m, 1, lambda m=m, among=among: self.make.counted(self.few, m, among)) for m, among in counts]

    def star_free(self) -> list[tuple[int, int, Make]]:
        makes = [self.flips_short, self.flips_long, self.nested, self.between]
        makes.append(lambda: either(self.nested(), self.between()))
        return [(0, 0, make) for make in self.started(2, makes)]

    def flips_short(self) -> Automaton:
        """Accept an "a" after which the other symbols in use are never side by side."""
        return then(self.make.stops((A,)), self.lacks(tuple(range(1, self.few + 1))))

    def flips_long(self) -> Automaton:
        """Accept the symbols in use but the last side by side, and the last nowhere after them."""
        return then(self.make.stops(tuple(range(self.few))), self.lacks((self.few,)))

    def nested(self) -> Automaton:
        """Accept one symbol, then (a (ab)* b)*, among the symbols a and b."""
        make = self.make
        a, b, ab = (both(make.starts(word), opposite(self.longer(len(word)))) for word in ((A,), (B,), (A, B)))
        one = both(self.longer(0), opposite(self.longer(1)))
        return on_tier(then(one, repeated(then(a, repeated(ab), b))), lambda symbol: symbol < 2)

    def longer(self, size: int) -> Automaton:
        """Accept strings of more than this many symbols."""
        return self.make.explored(0, lambda state, _: min(state + 1, size + 1), lambda state: state > size)

    def between(self) -> Automaton:
        """Accept two places with the last symbol in use, between which a a, b b, a a .. do not follow."""
        blocks = [((A, A), (B, B))[number % 2] for number in range(self.few)]
        mark = (self.few,)
        return then(self.make.stops(mark), opposite(self.make.contains(*blocks)), self.make.starts(mark))

    def regular(self) -> list[tuple[int, int, Make]]:
        few, make = self.few, self.make
        gaps = tuple((symbol,) * 2 for symbol in range(few))
        blocks: Make = lambda: opposite(make.contains(*(gaps * 2)[:2]))  # noqa: E731
        makes: list[Make] = [
            lambda: self.no_turns(few, 2),
            lambda: self.tiered(few + 1, self.no_turns(few, 2)),
            lambda: opposite(self.any_follows((A, B), (C, D))),
            lambda: either(self.no_turns(1, 2, back=True), self.no_run(2, 2)),
            lambda: self.tiered(few, either(self.no_turns(1, 2, back=True), self.no_run(few, 2))),
            lambda: either(opposite(self.any_follows((A, B), (B, A))), opposite(self.any_follows((A, A), (B, B)))),
            lambda: self.turns(few, 2, 3),
            blocks,
            lambda: self.tiered(few, blocks()),
            lambda: either(self.nested(), self.between()),
        ]
        return [(0, 0, lambda make=make: both(self.even(), make())) for make in makes]

    def by_factors(self, tier: int) -> Iterator[tuple[str, Make]]:
        """Yield the classes that exist with a tier, and SP and PT, which do not."""
        prefix = "T" if tier < self.size else ""
        for width in (2, 4, 6):
            kinds = {("SL", 1): self.strictly_local(width), ("LT", 1): self.locally_testable(width)}
            for times in {2: (2, 3, 5), 4: (2, 3), 6: (2,)}[width]:
                kinds["LTT", times] = self.threshold(width, times)
            kinds["PLT", 3 if width == 6 else 2] = self.in_order(width, 3 if width == 6 else 2)
            if not prefix:
                kinds["SP", 1] = [lambda w=width, i=i: opposite(self.piecewise(w, i)) for i in range(10)]
                kinds["PT", 1] = [lambda w=width, i=i: self.piecewise_testable(w, i) for i in range(10)]
            for (kind, threshold), makes in kinds.items():
                for number, make in enumerate(makes):
                    rest = f"{width}.{threshold}.{number}"
                    tiered: Make = lambda make=make: self.tiered(tier, make())  # noqa: E731
                    yield f"{self.size:02}.{tier:02}.{prefix}{kind}.{rest}", tiered
                    if kind in ("SL", "SP"):
                        yield f"{self.size:02}.{tier:02}.{prefix}co{kind}.{rest}", lambda t=tiered: opposite(t())

    def strictly_local(self, width: int) -> list[Make]:
        few, make = self.few, self.make
        start, end = self.make.starts((A,) * (width - 1)), (width - 1)
        return [
            lambda: self.no_run(1, width),
            lambda: self.no_turns(few, width),
            lambda: self.no_turns(1, width, back=True),
            lambda: self.no_run(few, width),
            lambda: both(start, self.no_run(1, width)),
            lambda: both(start, self.no_turns(1, width)),
            lambda: both(start, self.no_turns(1, width, back=True)),
            lambda: both(start, self.no_run(few, width)),
            lambda: both(start, opposite(make.stops((A,) * end))),
            lambda: both(start, make.stops((B,) * end)),
        ]

    def locally_testable(self, width: int) -> list[Make]:
        half = width // 2
        makes: list[Make] = [
            lambda: either(self.no_run(1, width), self.has((B, B) * half)),
            lambda: either(self.no_run(1, width), self.has((B, B) * half, (B, C) * half)),
            lambda: either(self.no_turns(1, width, back=True), self.no_run(2, width)),
            lambda: either(opposite(self.no_turns(1, width, back=True)), self.no_run(2, width)),
            lambda: opposite(alike(self.no_run(1, width), self.no_turns(1, width, back=True))),
        ]
        return self.started(width, makes)

    def threshold(self, width: int, times: int) -> list[Make]:
        runs: Make = lambda: self.make.overlapping(A, width=width, times=times)  # noqa: E731
        makes: list[Make] = [
            runs,
            lambda: opposite(self.turns(self.few, width, times)),
            lambda: either(self.no_run(1, width), runs()),
            lambda: either(self.no_turns(2, width), self.turns(2, width, times)),
            lambda: both(runs(), opposite(self.turns(2, width, times))),
        ]
        return self.started(width, makes)

    def in_order(self, width: int, parts: int) -> list[Make]:
        half, contains = width // 2, self.make.contains
        makes: list[Make] = [
            lambda: opposite(contains((B,), (C,) * width, *[(B,)] * (parts - 2))),
            lambda: opposite(contains((A,) * width, *[(B,)] * (parts - 1))),
            lambda: contains((A, B) * half, *[(C,)] * (parts - 1)),
            lambda: either(contains((B,) * width), contains((C,), *[(A, A)] * (parts - 1))),
            lambda: either(opposite(contains(*[(A, B)] * (parts - 1), (B, A) * half)), contains((A, C))),
        ]
        return self.started(2, makes)

    def piecewise(self, width: int, number: int) -> Automaton:
        """Accept strings with one of several subsequences."""
        words = [(A, B) * (width // 2), *self.second(width, number)]
        return self.any_follows(*words, *[(D,) * width] * (number > 4))

    def piecewise_testable(self, width: int, number: int) -> Automaton:
        """Accept strings that have some subsequences if they have others."""
        first = self.any_follows((A, B), *[(D, D)] * (number > 4))
        return either(opposite(first), self.any_follows(*self.second(width, number)))

    def second(self, width: int, number: int) -> list[Word]:
        pairs = [[(C, D)], [(B, C), (C, D)], [(B, A), (C, D)], [(B, A), (B, C), (C, D)], [(C, A), (D, C)]]
        return [pair * (width // 2) for pair in pairs[number % 5]]
