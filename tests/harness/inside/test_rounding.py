"""Rounding: groups of tasks, near representations made exact, and a model whose turns are a little off."""

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from torch import Tensor

from chomsky_ladder.harness.config.parts import replaced
from chomsky_ladder.harness.config.registry import find_model, find_task
from chomsky_ladder.harness.config.run import Eval, Run, Train
from chomsky_ladder.harness.inside import rounding
from chomsky_ladder.harness.inside.rounding import (
    Group,
    Kept,
    group_of,
    kept_deeper,
    orbit,
    representation,
    rounded,
    subspaces,
)
from chomsky_ladder.harness.inside.streams import Trained
from chomsky_ladder.harness.train.build import build_model
from chomsky_ladder.models.bilinear_rnn import BilinearRecurrence
from chomsky_ladder.tasks.base import Task

ROOT = Path(__file__).parents[3]
SCORE = Eval(lengths=(8, 12), test=8, validation=8, every=0, bins=(8, 12), extrapolate=())
TRAIN = Train(steps=2, batch=4, lengths=(3, 8), precision="fp64")
A5 = {"group": "A5", "inputs": "generators"}


def task_of(name: str, **settings: Any) -> Task:
    return replaced(find_task(name)(), settings, where="task")


def run_of(task: Task, model: str = "bilinear_rnn", **settings: Any) -> Run:
    config = find_model(model)(d_model=16, num_blocks=1) if model == "bilinear_rnn" else find_model(model).tiny()
    return Run(task=task, model=replaced(config, settings, where="model"), train=TRAIN, eval=SCORE)


def fresh(run: Run) -> Trained:
    return Trained(run, build_model(run, torch.device("cpu")).eval().double(), 0)


def permutations(group: Group) -> Tensor:
    """Return what each symbol does to the elements, as matrices without the direction that all share."""
    places_SG = group.table_GG[:, list(group.of_symbol)].T
    matrices_SGG = torch.nn.functional.one_hot(places_SG).transpose(1, 2).double()
    centred_GG = torch.eye(len(group.words), dtype=torch.double) - 1 / len(group.words)
    basis_GR = torch.linalg.svd(centred_GG).U[:, :-1]
    return basis_GR.T @ matrices_SGG @ basis_GR


def noise(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0), dtype=torch.double)


@pytest.mark.parametrize(
    ("task", "order", "longest"),
    [
        (task_of("parity"), 2, 1),
        (task_of("cycle_nav", cycle=3), 3, 1),
        (task_of("word_problem", group="S3"), 6, 1),
        (task_of("word_problem", **A5), 60, 9),
    ],
    ids=["Z2", "Z3", "S3", "A5"],
)
def test_the_group_of_a_task_is_the_one_it_is_named_for(task: Task, order: int, longest: int) -> None:
    group = group_of(task)
    assert len(group.words) == order and max(map(len, group.words)) <= longest
    table = group.table_GG
    assert torch.equal(table[table], table[:, table])  # (g h) k = g (h k)
    for element, word in enumerate(group.words):
        reached = 0
        for place in word:
            reached = int(table[reached, group.of_symbol[place]])
        assert reached == element


def test_a_task_that_forgets_has_no_group() -> None:
    with pytest.raises(ValueError, match="symbols that forget"):
        group_of(task_of("even_pairs"))


@pytest.mark.parametrize("settings", [{"group": "S3"}, A5], ids=["S3", "A5"])
def test_matrices_near_a_representation_become_exact(settings: dict[str, Any]) -> None:
    group = group_of(task_of("word_problem", **settings))
    true_SRR = permutations(group)
    size = true_SRR.shape[-1]
    skew_RR = torch.eye(size, dtype=torch.double) + 0.05 * noise(size, size)
    near_SRR = torch.linalg.inv(skew_RR) @ true_SRR @ skew_RR
    near_SRR = (near_SRR + 0.002 * noise(*near_SRR.shape)) * (1 + noise(len(near_SRR), 1, 1) ** 2)
    exact_SRR = representation(near_SRR, group)
    assert exact_SRR is not None
    told = {element: rounding._product(exact_SRR, word) for element, word in enumerate(group.words)}
    for element, matrix_RR in told.items():
        for place, step in enumerate(group.of_symbol):
            product_RR = told[int(group.table_GG[element, step])]
            assert torch.allclose(exact_SRR[place] @ matrix_RR, product_RR, atol=1e-7)
    assert (exact_SRR - near_SRR / torch.linalg.det(near_SRR).abs().pow(1 / size)[:, None, None]).abs().max() < 0.1


def test_matrices_far_from_every_representation_become_none() -> None:
    group = group_of(task_of("word_problem", **A5))
    assert representation(noise(2, 2, 2), group) is None  # A5 has no plane to turn


def turned(degrees: float) -> Tensor:
    angle = torch.deg2rad(torch.tensor(degrees, dtype=torch.double))
    return torch.stack([torch.stack([angle.cos(), -angle.sin()]), torch.stack([angle.sin(), angle.cos()])])


def off_by_a_little(task: Task) -> tuple[Trained, Tensor]:
    """Return a model whose first block of the state nearly turns a plane by thirds, and its matrices [S, H, K, K]."""
    trained = fresh(run_of(task))
    layer = next(part for part in trained.model.modules() if isinstance(part, BilinearRecurrence))
    x_SD = rounding._inputs(trained.model, layer, group_of(task).symbols)
    A_SHKK = 0.1 * noise(3, 4, 4, 4) + torch.diag(torch.tensor([1.0, 0.5, 0.2, 0.1], dtype=torch.double))
    for symbol, degrees in enumerate((0.5, 118.5, -121.0)):  # STAY, +1, -1
        A_SHKK[symbol, 0] = 0.05 * A_SHKK[symbol, 0]
        A_SHKK[symbol, 0, :2, :2] = (1 + symbol) * turned(degrees)
        A_SHKK[symbol, 0, 2:, :2] = 0.0
    with torch.no_grad():
        layer.transition.weight.copy_((torch.linalg.pinv(x_SD) @ A_SHKK.flatten(1)).T)
    return trained, A_SHKK


def matrices(trained: Trained) -> Tensor:
    layer = next(part for part in trained.model.modules() if isinstance(part, BilinearRecurrence))
    x_SD = rounding._inputs(trained.model, layer, group_of(trained.run.task).symbols)
    return layer.transition(x_SD).detach().unflatten(-1, (4, 4, 4))


def test_turns_that_are_a_little_off_become_thirds_of_a_circle() -> None:
    trained, A_SHKK = off_by_a_little(task_of("cycle_nav", cycle=3))
    found, kept = rounded(trained)
    assert torch.allclose(matrices(trained), A_SHKK)  # the trained model stays as it was
    plane_S22 = matrices(found)[:, 0, :2, :2]
    for symbol, degrees in enumerate((0.0, 120.0, -120.0)):
        assert torch.allclose(plane_S22[symbol], (1 + symbol) * turned(degrees), atol=1e-6)
    assert kept == [Kept(0, 2, kept[0].moved, rounded=True, character=kept[0].character)]
    assert kept[0].moved == pytest.approx(0.0262, abs=2e-3)  # 1.5 degrees
    assert kept[0].character == pytest.approx(2.0)  # a turned plane splits over C alone
    assert torch.allclose(matrices(found)[:, 1:], A_SHKK[:, 1:], atol=1e-9)  # a single direction is left alone


def test_an_orbit_visits_a_place_for_each_element() -> None:
    trained, _ = off_by_a_little(task_of("cycle_nav", cycle=3))
    _, (kept,) = rounded(trained)
    found = orbit(trained, kept, length=50)
    assert found.rounded_LR.shape == (50, 2) and torch.allclose(found.rounded_LR.norm(dim=1), noise(50) * 0 + 1)
    for element in range(3):
        own_NR = found.rounded_LR[found.element_L == element]
        assert len(own_NR) and torch.allclose(own_NR, own_NR[:1].expand_as(own_NR), atol=1e-9)
    assert (found.trained_LR - found.rounded_LR).norm(dim=1)[-1] > 0.1  # it has drifted


def test_a_subspace_is_found_in_any_basis() -> None:
    A_S1KK = torch.zeros(3, 1, 4, 4, dtype=torch.double)
    for symbol, degrees in enumerate((0.0, 119.0, -122.0)):
        A_S1KK[symbol, 0, :2, :2], A_S1KK[symbol, 0, 2:, 2:] = turned(degrees), 0.3 * turned(7.0)
    turn_KK = torch.linalg.qr(noise(4, 4)).Q
    (basis_KR,) = subspaces(turn_KK @ A_S1KK @ turn_KK.T)
    assert torch.allclose(basis_KR @ basis_KR.T, turn_KK[:, :2] @ turn_KK[:, :2].T, atol=1e-9)


@pytest.mark.parametrize(("shares", "sizes"), [((1.0, 1.0, 0.2, 0.1), [2] * 4), ((1.0, 0.5, 0.2, 0.1), [])])
def test_later_layers_keep_the_directions_that_grow_alike(shares: tuple[float, ...], sizes: list[int]) -> None:
    trained = fresh(run_of(task_of("cycle_nav", cycle=3), num_blocks=2))
    _, second = [part for part in trained.model.modules() if isinstance(part, BilinearRecurrence)]
    with torch.no_grad():
        along_HD = noise(4, 1, 1, 16)  # each block's matrices are diag(shares), times what the input is along a vector
        second.transition.weight.copy_((torch.diag(torch.tensor(shares))[..., None] * along_HD).flatten(0, 2))
    assert kept_deeper(trained) == sizes
    assert kept_deeper(fresh(run_of(task_of("cycle_nav", cycle=3)))) == []


@pytest.mark.parametrize(
    ("model", "settings", "said"),
    [
        ("lstm", {}, "has no bilinear recurrence"),
        ("bilinear_rnn", {"short_conv": 4}, "reads symbols before each"),
        ("hybrid", {"pattern": "transformer,bilinear_rnn"}, "reads symbols before each"),
    ],
)
def test_what_cannot_be_rounded_is_refused(model: str, settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        rounded(fresh(run_of(task_of("cycle_nav"), model, **settings)))


def test_the_script_writes_both_accuracies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = importlib.util.spec_from_file_location("rounding_script", ROOT / "scripts" / "rounding.py")
    assert spec and spec.loader
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    trained, _ = off_by_a_little(task_of("cycle_nav", cycle=3))
    monkeypatch.setattr(script, "load_trained", lambda folder: trained)
    monkeypatch.setattr(script, "find_run", lambda results, run_id: run_id)
    table, picture = tmp_path / "rounded.csv", tmp_path / "orbits.png"
    for _ in range(2):  # the second time replaces the first
        words = [
            "rounding.py",
            "any",
            "--length",
            "60",
            "--strings",
            "3",
            "--csv",
            str(table),
            "--picture",
            str(picture),
        ]
        monkeypatch.setattr(sys, "argv", words)
        assert script.main() == 0
    read = pd.read_csv(table)
    assert list(read["to"]) == [8, 16, 32, 59] and set(read["subspaces"]) == {2}
    assert list(read.columns) == list(script.COLUMNS)
    assert len(pd.read_csv(picture.with_suffix(".csv"))) == script.DOTS and picture.stat().st_size > 10_000
    assert f"{trained.run.run_id}: 2 moved 0.03, characters 2" in capsys.readouterr().out
