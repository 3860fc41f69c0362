"""Texts: a chain whose entropy is known, which nobody beats, and files whose tokens are the file and nothing else."""

import math
from collections import Counter
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from chomsky_ladder.harness.config.exec import Exec
from chomsky_ladder.harness.config.run import Eval, Run, Train
from chomsky_ladder.harness.train.evaluate import Evaluator
from chomsky_ladder.harness.train.loop import execute
from chomsky_ladder.models.block import Context
from chomsky_ladder.models.lstm import LSTMConfig
from chomsky_ladder.tasks._text_files import FIRST_WORD, PARTS, open_text
from chomsky_ladder.tasks.base import PAD, Batch
from chomsky_ladder.tasks.draw import Draw
from chomsky_ladder.tasks.text import CHAIN, ENTROPY_RATE, LETTERS, STATIONARY, UNIGRAM_ENTROPY, Text, part_of

torch.set_num_threads(1)

P = np.array(CHAIN) / 8
PI = np.array(STATIONARY) / 8
ENGLISH = "The cat sat on the mat; the cat, it sat. Über alles: the café's 3 cats -- \n\n\tand the mat?! "


class Table(nn.Module):
    """A "model" that says after each letter what a table has, and hears nothing else."""

    def __init__(self, rows: np.ndarray) -> None:
        super().__init__()
        with np.errstate(divide="ignore"):
            logs = np.log(np.pad(rows, ((1, 0), (1, 0))))
        self.logs_VV = nn.Parameter(torch.from_numpy(logs), requires_grad=False)

    def forward(self, tokens_BL: Tensor, ctx: Context) -> Tensor:
        return self.logs_VV[tokens_BL]


def loss_of(model: nn.Module, *, strings: int = 1000, length: int = 100) -> float:
    run = Run(task=Text(), model=LSTMConfig(), eval=Eval(lengths=(length, length), test=strings))
    return Evaluator(run, model, device=torch.device("cpu"), backend="auto").test().loss()


def expected(rows: np.ndarray) -> float:
    """The cross entropy of a table in nats, over all pairs of letters."""
    return sum(-PI[i] * P[i, j] * math.log(rows[i, j]) for i in range(4) for j in range(4) if P[i, j])


def sample(rows: int, length: int) -> Batch:
    draw = Draw(seed=3, split="train", rows_B=torch.arange(rows))
    return Text().sample(draw, torch.full((rows,), length), length)


def test_the_entropy_is_what_the_docstring_says() -> None:
    chain = [[Fraction(x, 8) for x in row] for row in CHAIN]
    letters = [Fraction(x, 8) for x in STATIONARY]
    assert [sum(letters[i] * chain[i][j] for i in range(4)) for j in range(4)] == letters
    assert [sum(row) for row in [*chain, letters]] == [1] * 5
    bits = [sum(x * int(math.log2(x.denominator)) for x in row if x) for row in [*chain, letters]]
    assert all(x.numerator == 1 for row in [*chain, letters] for x in row if x)  # so that the logarithms are whole
    rate = sum(weight * h for weight, h in zip(letters, bits, strict=False))
    assert (rate, bits[-1]) == (Fraction(5, 4), Fraction(7, 4))
    assert math.log(2) * 1.25 == pytest.approx(ENTROPY_RATE, rel=1e-15)
    assert math.log(2) * 1.75 == pytest.approx(UNIGRAM_ENTROPY, rel=1e-15)
    assert expected(P) == pytest.approx(ENTROPY_RATE, rel=1e-12)
    assert sum(x * max(row) for x, row in zip(letters, chain, strict=True)) == Fraction(9, 16)


def test_strings_are_of_the_chain_from_the_first_letter_to_the_last() -> None:
    batch = sample(10_000, 33)
    x_BW = torch.cat([batch.tokens_BL, batch.targets_BL[:, -1:]], 1).numpy() - 1
    assert (batch.targets_BL[:, :-1] == batch.tokens_BL[:, 1:]).all()
    for place in (0, 1, 2, 15, 16, 31, 32):
        found = np.bincount(x_BW[:, place] * 4 + x_BW[:, place + 1], minlength=16).reshape(4, 4)
        law = PI[:, None] * P
        assert (np.abs(found - 10_000 * law) <= 5 * np.sqrt(10_000 * law * (1 - law))).all(), place
    # Of the letters before, given the last one, nothing is left in the next.
    after_b = x_BW[:, 2][(x_BW[:, 1] == 1) & (x_BW[:, 0] == 0)]
    assert np.bincount(after_b, minlength=4)[:2].mean() == pytest.approx(len(after_b) / 2)
    assert abs((after_b == 0).mean() - 0.5) < 5 * 0.5 / math.sqrt(len(after_b))


def test_the_chains_own_table_attains_the_entropy() -> None:
    spread = math.sqrt(sum(PI[i] * P[i, j] * math.log(P[i, j]) ** 2 for i in range(4) for j in range(4) if P[i, j]))
    assert loss_of(Table(P)) == pytest.approx(ENTROPY_RATE, abs=5 * spread / math.sqrt(100_000))


@settings(max_examples=15, deadline=None)
@given(st.lists(st.lists(st.integers(1, 50), min_size=4, max_size=4), min_size=4, max_size=4))
def test_no_table_beats_it(weights: list[list[int]]) -> None:
    """Holds exactly in expectation (Gibbs), and on the same strings up to chance."""
    rows = np.array(weights, dtype=float) / np.sum(weights, axis=1, keepdims=True)
    assert expected(rows) >= ENTROPY_RATE
    assert loss_of(Table(rows), strings=200) == pytest.approx(expected(rows), abs=0.1)


def test_longer_memories_do_not_beat_it() -> None:
    """The next letter counted after every two letters, on strings of their own."""
    train_BW, test_BW = (
        Text()
        .sample(Draw(seed=0, split=split, rows_B=torch.arange(4000)), torch.full((4000,), 20), 20)
        .tokens_BL.numpy()
        - 1
        for split in ("train", "test")
    )
    counts = np.zeros((4, 4, 4)) + 1e-3
    np.add.at(counts, (train_BW[:, :-2], train_BW[:, 1:-1], train_BW[:, 2:]), 1)
    rows = counts / counts.sum(2, keepdims=True)
    loss, own = (
        -np.log(table[test_BW[:, :-2], test_BW[:, 1:-1], test_BW[:, 2:]]).mean() for table in (rows, P[None] + 0 * rows)
    )
    assert own < loss < own + 0.01


def test_the_floors_are_those_of_the_letters() -> None:
    floors = Text().floors(Text().legal_lengths(64, 128))
    assert floors == pytest.approx((0.25, 0.5, 0.5), abs=1e-12)
    assert loss_of(Table(np.tile(PI, (4, 1)))) == pytest.approx(UNIGRAM_ENTROPY, abs=0.01)
    assert Text().unigram_loss() == UNIGRAM_ENTROPY and Text().bits_per_byte(ENTROPY_RATE) == pytest.approx(1.25)
    assert Text().facts["lowest_perplexity"] == f"{2**1.25:.4f}" and Text().vocab[1:] == tuple(LETTERS)


@pytest.mark.slow
def test_an_lstm_comes_within_two_per_cent_and_no_lower(tmp_path: Path) -> None:
    run = Run(
        task=Text(),
        model=LSTMConfig(d_model=32, num_blocks=1),
        train=Train(steps=300, batch=32, lengths=(64, 64), lr=1e-2),
        eval=Eval(lengths=(64, 64), test=1024, validation=64, every=0, extrapolate=(), bins=(64,)),
    )
    loss = execute(run, Exec(results=tmp_path, device="cpu"), quiet=True)["test"]["loss"]
    assert ENTROPY_RATE * 0.99 < loss < ENTROPY_RATE * 1.02


def written(folder: Path, text: str | bytes, *, times: int = 1) -> str:
    path = folder / "corpus.txt"
    path.write_bytes((text.encode() if isinstance(text, str) else text) * times)
    return str(path)


def opened(path: str, **options: int) -> tuple[Text, dict[str, list[int]]]:
    task = Text(file=path, **options)
    return task, {name: task.part(name, torch.device("cpu")).tolist() for name in PARTS}


def test_the_parts_are_the_file_in_its_order(tmp_path: Path) -> None:
    content = bytes(range(256)) * 4 + b"end"
    for held_out, ends in ((10, (821, 924)), (25, (513, 770))):
        task, parts = opened(written(tmp_path, content), held_out=held_out)
        expected = [content[: ends[0]], content[ends[0] : ends[1]], content[ends[1] :]]
        assert [bytes(token - 1 for token in parts[name]) for name in PARTS] == expected
        assert len(task.vocab) == FIRST_WORD == 257 and max(task.answers) == 256
        assert task.bits_per_byte(math.log(2)) == pytest.approx(1)


def pieces(text: str) -> list[str]:
    """Words with the space before them, letter by letter."""

    def kind(letter: str) -> str:
        return "space" if letter.isspace() else "word" if letter.isalnum() or letter == "_" else "sign"

    found: list[str] = []
    for letter in text:
        goes_on = found and (kind(found[-1][-1]) == kind(letter) or found[-1] == " ")
        found = [*found[:-1], found[-1] + letter] if goes_on else [*found, letter]
    return found


@pytest.mark.parametrize("words", [1, 5, 12])
def test_words_are_the_commonest_of_the_training_part_and_all_else_is_spelled(words: int, tmp_path: Path) -> None:
    text = ENGLISH * 20 + " zebra" * 45  # the commonest word, but not of the training part
    task, parts = opened(written(tmp_path, text), words=words)
    cut = [0, len(text) * 80 // 100, len(text) * 90 // 100, len(text)]
    own = [text[a:b] for a, b in pairwise(cut)]
    counts = Counter(piece for piece in pieces(own[0]) if len(piece.encode()) > 1)
    known = sorted(counts, key=lambda word: (-counts[word], word))[:words]
    assert task.vocab[FIRST_WORD:] == tuple(map(repr, known)) and len(task.answers) == 256 + words
    for name, part in zip(PARTS, own, strict=True):
        tokens = []
        for piece in pieces(part):
            spelled = [byte + 1 for byte in piece.encode()]
            tokens += [FIRST_WORD + known.index(piece)] if piece in known else spelled
        assert parts[name] == tokens
        back = b"".join(known[t - FIRST_WORD].encode() if t >= FIRST_WORD else bytes([t - 1]) for t in tokens)
        assert back.decode() == part
    bits = task.bits_per_byte(3.0) * len(own[2].encode())  # of the whole part, by its tokens
    assert bits == pytest.approx(3.0 / math.log(2) * len(parts["test"]))


@pytest.mark.parametrize("words", [0, 3])
def test_the_laws_of_a_text_are_counts_over_all_windows(words: int, tmp_path: Path) -> None:
    task, parts = opened(written(tmp_path, ENGLISH, times=3), words=words)
    for length in (1, 2, 7):
        law, test = np.zeros((length, len(task.vocab))), parts["test"]
        windows = [test[start : start + length + 1] for start in range(len(test) - length)]
        for window in windows:
            for slot in range(length):
                law[slot, window[slot + 1]] += 1 / len(windows)
        np.testing.assert_allclose(task.answer_law(length), law, atol=1e-12)
    seen, size = Counter(parts["train"]), len(task.answers)
    chances = [(seen[token] + 1) / (len(parts["train"]) + size) for token in parts["test"]]
    assert task.unigram_loss() == pytest.approx(-sum(map(math.log, chances)) / len(chances), rel=1e-12)
    assert task.facts["test_tokens"] == f"{len(parts['test']):,}"
    longest = min(map(len, parts.values())) - 1
    assert task.legal_lengths(1, 10**9) == tuple(range(1, longest + 1))


def test_the_hash_is_found_out_and_held_to(tmp_path: Path) -> None:
    path = written(tmp_path, ENGLISH, times=2)
    task = Text(file=path)
    assert len(task.file_sha256) == 16 and Text(file=path, file_sha256=task.file_sha256) == task
    with pytest.raises(ValueError, match="another text now than file_sha256=0123"):
        Text(file=path, file_sha256="0123456789abcdef")
    Path(path).write_text(ENGLISH * 3)
    with pytest.raises(ValueError, match="another text now"):
        Text(file=path, file_sha256=task.file_sha256)
    assert Text(file=path).file_sha256 != task.file_sha256


def test_a_record_whose_file_has_gone_can_be_read_and_no_more(tmp_path: Path) -> None:
    path = str(tmp_path / "gone.txt")
    task = Text(file=path, file_sha256="0123456789abcdef", words=2)
    assert len(task.vocab) == len(set(task.vocab)) == FIRST_WORD + 2 and task.legal_lengths(128, 128) == (128,)
    with pytest.raises(ValueError, match=r"gone\.txt has gone"):
        task.part("train", torch.device("cpu"))


def test_what_is_wrong_with_a_file_is_said_in_one_line(tmp_path: Path) -> None:
    cases = [
        (b"", {}, "is too short: 0 bytes leave its train part 0 tokens"),
        (b"a" * 9, {}, "is too short: 9 bytes leave its validation part 1 tokens"),
        (b"ab \xff cd" * 50, {"words": 1}, "is not UTF-8 at byte 3: words need that; words=0 reads bytes"),
        (b"one two " * 50, {"words": 9}, "has 3 words of two bytes and more: words is 9"),
        (b"a" * 99, {"words": 32_001}, "words must lie in 0..32000"),
        (b"a" * 99, {"held_out": 50}, "held_out must lie in 1..49"),
    ]
    for content, options, message in cases:
        path = written(tmp_path, content)
        with pytest.raises(ValueError, match=message) as caught:
            Text(file=path, **options)
        assert "\n" not in str(caught.value) and "text: " in str(caught.value)
    assert Text(file=written(tmp_path, b"\xff" * 40)).vocab[-1] == "\\xff"
    for none in (tmp_path / "none.txt", tmp_path):
        with pytest.raises(ValueError, match="there is no file"):
            Text(file=str(none))
    for options in ({"words": 3}, {"held_out": 20}, {"file_sha256": "0"}):
        with pytest.raises(ValueError, match="settings of a file, which is not given"):
            Text(**options)
    short = Text(file=written(tmp_path, ENGLISH))
    with pytest.raises(ValueError, match="has no string of length 128"):
        Run(task=short, model=LSTMConfig(), train=Train(lengths=(128, 128)), eval=Eval(lengths=(128, 128)))


def test_open_text_refuses_what_changed_since_it_was_hashed(tmp_path: Path) -> None:
    path = written(tmp_path, ENGLISH)
    with pytest.raises(ValueError, match="another text now than file_sha256=feed"):
        open_text(path, "feed", words=0, held_out=10)


def test_every_split_has_its_part() -> None:
    parts = {"train": "train", "probe/train": "train", "validation": "validation", "validation/train": "validation"}
    parts |= {"probe/validation": "validation", "test": "test", "test/longer": "test", "probe/test": "test"}
    parts |= {"check": "test", "floors": "test", "training": "test"}
    assert {split: part_of(split) for split in parts} == parts


def test_padding_is_blank() -> None:
    draw = Draw(seed=0, split="test", rows_B=torch.arange(3))
    batch = Text().sample(draw, torch.tensor([1, 4, 2]), 5)
    assert (batch.tokens_BL != PAD).sum(1).tolist() == batch.scored_BL.sum(1).tolist() == [1, 4, 2]
    assert batch.prompt_B.tolist() == [1, 1, 1]
