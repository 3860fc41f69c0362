"""Drift: zero at home, one at another state's home, growing with noise; what has no homes has none."""

import pytest
import torch

from chomsky_ladder.harness.inside.drift import Drift


def drift(stream_BLD: torch.Tensor, state_BL: torch.Tensor, *, piece: int = 80) -> list[float | None]:
    """Return the drift at positions 1 to 40, which make the homes, and 41 to 80."""
    found = Drift(state_BL[..., None], first=40)
    for piece_BCD in stream_BLD.split(piece, 1):
        found.read(piece_BCD)
    return [found.between(1, 40), found.between(41, 80)]


def walk(*, noise: float = 0.0, turned: bool = False, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Return streams of three states in eight dimensions, and the states. Noise begins behind position 40."""
    draw = torch.Generator().manual_seed(seed)
    state_BL = torch.randint(3, (16, 80), generator=draw)
    homes_CD = torch.eye(3, 8)
    stream_BLD = homes_CD[(state_BL + 1) % 3 if turned else state_BL]
    stream_BLD[:, :40] = homes_CD[state_BL[:, :40]]
    stream_BLD[:, 40:] += noise * torch.randn(16, 40, 8, generator=draw)
    return stream_BLD, state_BL


def test_it_is_zero_at_home_and_one_at_anothers() -> None:
    assert drift(*walk()) == pytest.approx([0, 0], abs=1e-6)
    assert drift(*walk(turned=True)) == pytest.approx([0, 1], abs=1e-6)


@pytest.mark.parametrize("states", [2, 3, 60])
def test_the_centre_of_homes_is_where_it_is_said_to_be(states: int) -> None:
    draw = torch.Generator().manual_seed(0)
    homes_CD = torch.randn(states, 8, generator=draw)
    state_BL = torch.arange(states).repeat(2)[None]
    stream_BLD = homes_CD[state_BL].clone()
    stream_BLD = torch.cat([stream_BLD, homes_CD.mean(0).expand(1, states, 8)], 1)
    found = Drift(torch.cat([state_BL, torch.arange(states)[None]], 1)[..., None], first=2 * states)
    found.read(stream_BLD)
    assert found.between(2 * states + 1, 3 * states) == pytest.approx(((states - 1) / (2 * states)) ** 0.5, abs=1e-6)


@pytest.mark.parametrize("noise", [0.1, 0.5])
def test_it_measures_noise_where_homes_differ_and_no_other(noise: float) -> None:
    at_home, away = drift(*walk(noise=noise))
    assert at_home == pytest.approx(0, abs=1e-6)
    assert away == pytest.approx(noise, rel=0.1)  # of 2 dimensions in which homes differ, at a distance of sqrt(2)


def test_scale_and_turns_of_the_stream_do_not_matter() -> None:
    stream_BLD, state_BL = walk(noise=0.3)
    turn_DD = torch.linalg.qr(torch.randn(8, 8, generator=torch.Generator().manual_seed(1)))[0]
    assert drift(7 * stream_BLD @ turn_DD + 2, state_BL) == pytest.approx(drift(stream_BLD, state_BL), abs=1e-6)


def test_what_has_no_homes_or_overflowed_has_none() -> None:
    stream_BLD, state_BL = walk()
    assert drift(stream_BLD, torch.zeros_like(state_BL)) == [None, None]
    assert drift(torch.ones_like(stream_BLD), state_BL) == [None, None]
    stream_BLD[:, 40:] = float("inf")
    assert drift(stream_BLD, state_BL) == [pytest.approx(0, abs=1e-6), None]


@pytest.mark.parametrize("piece", [1, 7, 40, 64])
def test_pieces_are_measured_like_the_whole(piece: int) -> None:
    assert drift(*walk(noise=0.3), piece=piece) == drift(*walk(noise=0.3))


def test_a_state_that_appears_late_has_no_home() -> None:
    stream_BLD, state_BL = walk()
    state_BL[:, 60:] = 3
    assert drift(stream_BLD, state_BL) == pytest.approx([0, 0], abs=1e-6)
    state_BL[:, 40:] = 3
    assert drift(stream_BLD, state_BL)[1] is None


def test_states_have_parts() -> None:
    stream_BLD, state_BL = walk(noise=0.3)
    parts_BLS = torch.stack([state_BL // 2, state_BL % 2], -1)
    found = Drift(parts_BLS, first=40)
    found.read(stream_BLD)
    assert found.between(41, 80) == drift(stream_BLD, state_BL)[1]
