"""A drawn value depends on its address alone: not on the batch, the library, the shape or the day."""

from collections.abc import Iterator, Sequence

import numpy as np
import pytest
import torch

from chomsky_ladder.tasks.draw import Draw, NumpyDraw

torch.set_num_threads(1)


def methods(draw: Draw | NumpyDraw, high: torch.Tensor | np.ndarray) -> Iterator[torch.Tensor | np.ndarray]:
    yield draw.integers(7)
    yield draw.integers((1 << 31) - 1, (5, 3))
    yield draw.integers(high, (6,))
    yield draw.uniform()
    yield draw.uniform((2, 9))
    yield draw.permutation(1)
    yield draw.permutation(40)
    yield draw.categorical((3, 0, 5), (11,))
    yield draw.integers(1 << 30, (0,))
    for name in ("lengths", ""):
        child = draw.child(name)
        yield child.integers(1 << 30, (4,))
        yield child.child(name).uniform((4,))
    yield draw.integers(1 << 30, (4,))


@pytest.mark.parametrize("split", ["train", "", "validation/lengths", "pr\u00fcfung"])
@pytest.mark.parametrize("seed", [0, 1, -1, 2**31, 2**63 - 1])
def test_numpy_and_torch_agree_in_every_bit(seed: int, split: str) -> None:
    rows_B = torch.tensor([0, 1, 2, 2, 1000, 2**40, 2**62, -1])
    high_B = torch.arange(2, 10)[:, None]
    one = Draw(seed=seed, split=split, rows_B=rows_B)
    other = NumpyDraw(seed=seed, split=split, rows_B=rows_B.numpy())
    for a, b in zip(methods(one, high_B), methods(other, high_B.numpy()), strict=True):
        assert str(a.dtype) == f"torch.{b.dtype}"
        assert a.shape == b.shape and a.numpy().tobytes() == b.tobytes()
    assert one.calls == other.calls == 10


@pytest.mark.parametrize("seed", [0, 7, -3, 2**40])
def test_a_seed_may_be_a_tensor(seed: int) -> None:
    high_B = torch.arange(2, 10)[:, None]
    one, other = (Draw(seed=key, split="train", rows_B=torch.arange(8)) for key in (seed, torch.tensor(seed)))
    for a, b in zip(methods(one, high_B), methods(other, high_B), strict=True):
        assert a.dtype == b.dtype and torch.equal(a, b)


def test_a_value_does_not_depend_on_its_batch() -> None:
    high_B = torch.full((64, 1), 9)
    whole = list(methods(Draw(seed=4, split="test", rows_B=torch.arange(64)), high_B))
    for rows_B in (torch.arange(64).flip(0), torch.tensor([5]), torch.tensor([63, 0, 0, 31]), torch.arange(7, 40)):
        parts = methods(Draw(seed=4, split="test", rows_B=rows_B), high_B[: len(rows_B)])
        for all_rows, part in zip(whole, parts, strict=True):
            assert torch.equal(all_rows[rows_B], part)


def test_repeating_a_draw_repeats_its_values_and_a_second_call_does_not() -> None:
    one, again = (Draw(seed=4, split="test", rows_B=torch.arange(8)) for _ in range(2))
    first = one.integers(1 << 30, (20,))
    assert torch.equal(first, again.integers(1 << 30, (20,)))
    assert not torch.equal(first, one.integers(1 << 30, (20,)))


def test_the_global_generators_are_neither_read_nor_moved() -> None:
    values = []
    for global_seed in (0, 1):
        torch.manual_seed(global_seed)
        before = torch.random.get_rng_state()
        values.append(list(methods(Draw(seed=0, split="train", rows_B=torch.arange(3)), torch.tensor(5))))
        assert torch.equal(torch.random.get_rng_state(), before)
    assert all(torch.equal(a, b) for a, b in zip(*values, strict=True))


@pytest.mark.parametrize("high", [3, 10, 1 << 30])
def test_fewer_columns_are_the_first_of_more(high: int) -> None:
    few, many = (Draw(seed=9, split="train", rows_B=torch.arange(20)).integers(high, (width,)) for width in (40, 256))
    assert torch.equal(few, many[:, :40])
    few, many = (Draw(seed=9, split="train", rows_B=torch.arange(20)).uniform((width,)) for width in (40, 256))
    assert torch.equal(few, many[:, :40])


def test_a_shape_is_only_a_reshape() -> None:
    flat, folded, single, scalar = (
        Draw(seed=9, split="train", rows_B=torch.arange(20)).integers(1000, shape)
        for shape in ((24,), (2, 3, 4), (1,), ())
    )
    assert torch.equal(flat.reshape(20, 2, 3, 4), folded)
    assert scalar.shape == (20,)
    assert torch.equal(single[:, 0], scalar) and torch.equal(flat[:, 0], scalar)


def test_a_high_of_many_elements_is_as_many_draws_with_one() -> None:
    highs = [1, 2, 3, 10, 126, 1000, 1 << 20, (1 << 31) - 1]
    rows_B = torch.arange(16)
    single = {h: Draw(seed=1, split="train", rows_B=rows_B).integers(h, (8,)) for h in highs}
    by_column = Draw(seed=1, split="train", rows_B=rows_B).integers(torch.tensor(highs), (8,))
    by_row = Draw(seed=1, split="train", rows_B=rows_B).integers(torch.tensor(highs * 2)[:, None], (8,))
    row_alone = Draw(seed=1, split="train", rows_B=rows_B).integers(torch.tensor(highs * 2))
    for i, high in enumerate(highs):
        assert torch.equal(by_column[:, i], single[high][:, i])
        assert torch.equal(by_row[i], single[high][i]) and torch.equal(by_row[i + 8], single[high][i + 8])
        assert row_alone[i] == single[high][i, 0]


def test_the_stream_is_the_one_it_has_always_been() -> None:
    """If this fails every published number has become irreproducible: change neither these values nor the stream."""

    def draw(seed: int = 0, split: str = "train", rows: Sequence[int] = (0, 1, 2)) -> Draw:
        return Draw(seed=seed, split=split, rows_B=torch.tensor(rows))

    first = draw()
    assert first.integers(10, (8,)).tolist() == [
        [1, 0, 6, 0, 5, 4, 8, 1],
        [4, 4, 0, 2, 1, 2, 4, 7],
        [6, 9, 3, 2, 5, 5, 6, 0],
    ]
    assert first.integers(10, (8,)).tolist() == [
        [5, 8, 3, 2, 2, 9, 8, 3],
        [8, 9, 4, 2, 1, 5, 4, 1],
        [1, 4, 2, 9, 8, 9, 6, 3],
    ]
    assert draw().integers((1 << 31) - 1, (2,)).tolist() == [
        [245814151, 178107325],
        [903743935, 1065615016],
        [1446398178, 2033421648],
    ]
    assert draw(seed=1, rows=[0]).integers(10, (8,)).tolist() == [[2, 9, 8, 2, 0, 8, 3, 8]]
    assert draw(split="test", rows=[0]).integers(10, (8,)).tolist() == [[4, 8, 8, 5, 9, 9, 2, 5]]
    assert draw(1 << 40, "validation", [1 << 40]).integers(10, (8,)).tolist() == [[8, 7, 8, 4, 1, 8, 4, 8]]
    assert (draw(rows=[0]).uniform((3,)) * 2**24).tolist() == [[1920423, 1391463, 11188469]]
    assert draw(rows=[0]).permutation(8).tolist() == [[4, 2, 6, 3, 1, 0, 7, 5]]
    assert draw(rows=[0]).categorical((1, 2, 3), (8,)).tolist() == [[0, 0, 2, 0, 2, 1, 2, 0]]
    assert draw(rows=[0]).child("lengths").integers(10, (8,)).tolist() == [[6, 5, 0, 2, 6, 2, 5, 1]]
