"""The learning rate at its corners, who is decayed and how fast it learns, and AdamW against plain Python."""

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from harness.config import Train
from harness.optim import declared, optimiser, rate_at, set_rate
from models.lstm import LSTMConfig
from models.transformer import TransformerConfig

torch.set_num_threads(1)


class Declaring(nn.Module):
    """Something of every kind: matrices, a cube, vectors, a scalar, an embedding, norms, a frozen-decay matrix."""

    no_decay = frozenset({"slow_matrix", "kept"})
    rate_multipliers = {"slow_matrix": 0.1, "slow_vector": 0.1, "fast": 10.0}

    def __init__(self) -> None:
        super().__init__()
        for name, shape in (
            ("slow_matrix", (2, 3)),
            ("slow_vector", (3,)),
            ("fast", (3, 2)),
            ("kept", (2, 2)),
            ("cube", (2, 2, 2)),
            ("scalar", ()),
        ):
            self.register_parameter(name, nn.Parameter(torch.randn(shape)))
        self.embedding = nn.Embedding(5, 3)
        self.linear = nn.Linear(3, 2)
        self.layer_norm = nn.LayerNorm(3)
        self.rms_norm = nn.RMSNorm(3)
        self.inner = nn.Sequential(nn.Linear(2, 2, bias=False))


class Small(nn.Module):
    """A loss that every parameter moves, in float64."""

    no_decay = frozenset({"kept"})
    rate_multipliers = {"slow": 0.25, "kept": 3.0}

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        for name, shape in (("slow", (2, 2)), ("kept", (2, 3)), ("vector", (3,)), ("matrix", (3, 3))):
            value = torch.randn(shape, generator=generator, dtype=torch.float64)
            self.register_parameter(name, nn.Parameter(value))
        self.embedding = nn.Embedding(4, 2, dtype=torch.float64)
        with torch.no_grad():
            self.embedding.weight.copy_(torch.randn(4, 2, generator=generator, dtype=torch.float64))

    def loss(self, tokens_B: Tensor) -> Tensor:
        x_BD = self.embedding(tokens_B) @ self.slow @ self.kept + self.vector
        return (torch.tanh(x_BD @ self.matrix) ** 2).sum() + 1e-3 * x_BD.sum()


def rates(train: Train) -> list[float]:
    return [rate_at(train, step) for step in range(train.steps)]


def test_the_rate_at_its_corners() -> None:
    train = Train(steps=1000, lr=0.5, lr_final=0.02, warmup=0.1)
    assert rate_at(train, 0) == pytest.approx(0.5 / 100)
    assert rate_at(train, 49) == pytest.approx(0.25)
    assert rate_at(train, 99) == pytest.approx(0.5)  # the last step of the warm-up is at the peak
    assert rate_at(train, 100) == pytest.approx(0.5)
    assert rate_at(train, 999) == pytest.approx(0.02)


def test_the_rate_is_linear_then_a_cosine() -> None:
    train = Train(steps=60, lr=0.5, lr_final=0.02, warmup=0.25)
    climb, fall = rates(train)[:15], rates(train)[15:]
    assert climb == pytest.approx([0.5 * k / 15 for k in range(1, 16)])
    assert fall == pytest.approx([0.26 + 0.24 * math.cos(math.pi * k / 44) for k in range(45)])


def test_without_warm_up_the_first_step_is_at_the_peak() -> None:
    train = Train(steps=11, lr=0.5, lr_final=0.1, warmup=0.0)
    assert (rate_at(train, 0), rate_at(train, 10)) == pytest.approx((0.5, 0.1))
    assert rate_at(train, 5) == pytest.approx(0.3)


def test_a_warm_up_over_all_steps_never_falls() -> None:
    assert rates(Train(steps=5, lr=0.5, warmup=1.0)) == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.5])


@pytest.mark.parametrize("warmup", [0.0, 0.1, 0.5, 1.0])
def test_a_single_step_is_at_the_peak(warmup: float) -> None:
    assert rates(Train(steps=1, lr=0.5, warmup=warmup)) == [0.5]


@pytest.mark.parametrize("lr_final", [0.0, 0.02, 0.75])
def test_a_constant_rate_stays_after_its_warm_up(lr_final: float) -> None:
    train = Train(steps=20, lr=0.5, lr_final=lr_final, warmup=0.25, schedule="constant")
    assert rates(train)[:5] == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.5])
    assert rates(train)[5:] == [0.5] * 15
    assert rates(replace(train, warmup=0.0)) == [0.5] * 20


def test_the_rate_may_stay_under_a_cosine_and_may_end_at_zero() -> None:
    assert rates(Train(steps=3, lr=0.1, lr_final=0.1, warmup=0.0)) == pytest.approx([0.1, 0.1, 0.1])
    assert rates(Train(steps=3, lr=0.1, lr_final=0.0, warmup=0.0)) == pytest.approx([0.1, 0.05, 0.0])


def test_who_is_decayed_and_how_fast_it_learns() -> None:
    model = Declaring()
    names = {parameter: name for name, parameter in model.named_parameters()}
    found = {names[parameter]: (decays, factor) for parameter, decays, factor in declared(model)}
    assert found == {
        "slow_matrix": (False, 0.1),
        "slow_vector": (False, 0.1),
        "fast": (True, 10.0),
        "kept": (False, 1.0),
        "cube": (True, 1.0),
        "scalar": (False, 1.0),
        "embedding.weight": (False, 1.0),
        "linear.weight": (True, 1.0),
        "linear.bias": (False, 1.0),
        "layer_norm.weight": (False, 1.0),
        "layer_norm.bias": (False, 1.0),
        "rms_norm.weight": (False, 1.0),
        "inner.0.weight": (True, 1.0),
    }


def test_a_declaration_holds_for_the_modules_own_parameters_alone() -> None:
    """Two modules may call different things by one name."""
    model = nn.ModuleList([Small(), nn.Linear(2, 2)])
    model[1].register_parameter("kept", nn.Parameter(torch.zeros(2, 2)))
    found = {id(parameter): (decays, factor) for parameter, decays, factor in declared(model)}
    assert found[id(model[0].kept)] == (False, 3.0)
    assert found[id(model[1].kept)] == (True, 1.0)


def test_a_shared_parameter_is_one_parameter() -> None:
    model = nn.ModuleList([nn.Embedding(4, 3), nn.Linear(3, 4, bias=False)])
    model[1].weight = model[0].weight
    assert [(decays, factor) for _, decays, factor in declared(model)] == [(False, 1.0)]
    assert sum(len(group["params"]) for group in optimiser(model, Train()).param_groups) == 1


@pytest.mark.parametrize("attribute", ["no_decay", "rate_multipliers"])
def test_a_declared_name_must_be_a_parameter(attribute: str) -> None:
    model = nn.Linear(2, 2)
    setattr(model, attribute, {"wieght": 2.0})
    with pytest.raises(AssertionError, match="Linear declares 'wieght'"):
        list(declared(model))


@pytest.mark.parametrize("model", [Declaring(), LSTMConfig.tiny().build(4), TransformerConfig.tiny().build(4)])
def test_the_groups_hold_every_parameter_once(model: nn.Module) -> None:
    train = Train(weight_decay=0.3, betas=(0.7, 0.8), eps=1e-4, lr=0.02)
    groups = optimiser(model, train).param_groups
    assert sorted(id(p) for group in groups for p in group["params"]) == sorted(map(id, model.parameters()))
    place = {id(p): (group["weight_decay"], group["multiplier"]) for group in groups for p in group["params"]}
    for parameter, decays, factor in declared(model):
        assert place[id(parameter)] == (0.3 if decays else 0.0, factor)
    assert len({(group["weight_decay"], group["multiplier"]) for group in groups}) == len(groups)
    assert {(group["betas"], group["eps"]) for group in groups} == {((0.7, 0.8), 1e-4)}


def test_the_rate_reaches_every_group_times_its_multiplier() -> None:
    optimizer = optimiser(Declaring(), Train())
    for rate in (0.5, 0.02):
        set_rate(optimizer, rate)
        for group in optimizer.param_groups:
            assert group["lr"] == pytest.approx(rate * group["multiplier"])
    assert {group["multiplier"] for group in optimizer.param_groups} == {0.1, 1.0, 10.0}


def adamw_by_hand(model: Small, train: Train, batches: list[Tensor]) -> dict[str, list[float]]:
    """Loshchilov and Hutter's update, one float after the other; only the gradients come from torch."""
    decay = {"slow": train.weight_decay, "matrix": train.weight_decay}
    factor = {"slow": 0.25, "kept": 3.0}
    beta_1, beta_2 = train.betas
    weights = {name: p.detach().flatten().tolist() for name, p in model.named_parameters()}
    first, second = ({name: [0.0] * len(values) for name, values in weights.items()} for _ in range(2))
    for step, tokens_B in enumerate(batches):
        gradients = dict(zip(weights, torch.autograd.grad(model.loss(tokens_B), list(model.parameters())), strict=True))
        for name, values in weights.items():
            rate = rate_at(train, step) * factor.get(name, 1.0)
            for i, gradient in enumerate(gradients[name].flatten().tolist()):
                first[name][i] = beta_1 * first[name][i] + (1 - beta_1) * gradient
                second[name][i] = beta_2 * second[name][i] + (1 - beta_2) * gradient**2
                m = first[name][i] / (1 - beta_1 ** (step + 1))
                v = second[name][i] / (1 - beta_2 ** (step + 1))
                values[i] -= rate * decay.get(name, 0.0) * values[i]
                values[i] -= rate * m / (math.sqrt(v) + train.eps)
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                parameter.copy_(torch.tensor(weights[name], dtype=torch.float64).view_as(parameter))
    return weights


def test_three_steps_equal_a_hand_written_adamw() -> None:
    train = Train(steps=3, lr=0.1, lr_final=0.01, warmup=0.0, betas=(0.9, 0.95), weight_decay=0.5, eps=1e-3)
    batches = [torch.tensor(tokens) for tokens in ([0, 1, 2], [1, 1, 3], [2, 0, 1])]
    model = Small()
    optimizer = optimiser(model, train)
    for step, tokens_B in enumerate(batches):
        optimizer.zero_grad()
        model.loss(tokens_B).backward()
        set_rate(optimizer, rate_at(train, step))
        optimizer.step()
    expected = adamw_by_hand(Small(), train, batches)
    for name, parameter in model.named_parameters():
        assert parameter.detach().flatten().tolist() == pytest.approx(expected[name], rel=1e-12, abs=1e-14), name
    undecayed = adamw_by_hand(Small(), replace(train, weight_decay=0.0), batches)
    changed = {name for name in expected if expected[name] != pytest.approx(undecayed[name], rel=1e-6)}
    assert {"slow", "matrix"} <= changed  # the decay is large enough to be seen


def test_complex_parameters_are_optimised_too() -> None:
    model = nn.Module()
    model.poles = nn.Parameter(torch.ones(2, 2, dtype=torch.complex64))
    model.poles.abs().square().sum().backward()
    optimizer = optimiser(model, Train(lr=0.1))
    optimizer.step()
    assert (model.poles.abs() < 1).all()
