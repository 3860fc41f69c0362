"""The learning rate at its corners, who is decayed and how fast it learns, and AdamW against plain Python."""

import copy
import math
from dataclasses import replace
from itertools import chain

import pytest
import torch
from torch import Tensor, nn

from chomsky_ladder.harness.config.registry import all_models
from chomsky_ladder.harness.config.run import Train
from chomsky_ladder.harness.train.optim import AdamW, declared, rate_at
from chomsky_ladder.models.kernels.native import missing

torch.set_num_threads(1)

WAYS = ["auto", "reference"]


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


@pytest.mark.parametrize("attribute", ["no_decay", "rate_multipliers"])
def test_a_declared_name_must_be_a_parameter(attribute: str) -> None:
    model = nn.Linear(2, 2)
    setattr(model, attribute, {"wieght": 2.0})
    with pytest.raises(AssertionError, match="Linear declares 'wieght'"):
        list(declared(model))


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


def flat(model: nn.Module) -> Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def stacked(models: list[Small], trains: list[Train], batches: list[Tensor], *, backend: str) -> Tensor:
    """The weights [R, P] of models after a step for each batch."""
    weight_RP = torch.stack([flat(model) for model in models])
    rows = [
        (torch.full((p.numel(),), float(decays)), torch.full((p.numel(),), factor))
        for p, decays, factor in declared(models[0])
    ]
    decayed_P, multiplier_P = (torch.cat(column).double() for column in zip(*rows, strict=True))
    optimizer = AdamW(weight_RP, decayed_P, multiplier_P, trains, backend=backend)
    live_R, done_R = torch.ones(len(models), dtype=torch.bool), torch.zeros(len(models), dtype=torch.int64)
    for step, tokens_B in enumerate(batches):
        gradients = []
        for model, weight_P in zip(models, weight_RP, strict=True):
            with torch.no_grad():
                sizes = [parameter.numel() for parameter in model.parameters()]
                for parameter, piece in zip(model.parameters(), weight_P.split(sizes), strict=True):
                    parameter.copy_(piece.view_as(parameter))
            found = torch.autograd.grad(model.loss(tokens_B), list(model.parameters()))
            gradients.append(torch.cat([gradient.flatten() for gradient in found]))
        gradient_RP = torch.stack(gradients)
        norm_R = gradient_RP.norm(dim=1)
        optimizer.update(gradient_RP, norm_R=norm_R, step=torch.tensor(step), done_R=done_R, ok_R=live_R)
        done_R += 1
    return weight_RP


BATCHES = [torch.tensor(tokens) for tokens in ([0, 1, 2], [1, 1, 3], [2, 0, 1])]


@pytest.mark.parametrize("backend", WAYS)
def test_three_steps_equal_a_hand_written_adamw(backend: str) -> None:
    """Two replicas, each with its own learning rate, decay, constants and weights."""
    one = Train(steps=3, lr=0.1, lr_final=0.01, warmup=0.0, betas=(0.9, 0.95), weight_decay=0.5, eps=1e-3, clip=0.0)
    other = replace(one, lr=0.03, warmup=0.5, betas=(0.8, 0.99), weight_decay=0.2, eps=1e-2)
    models = [Small(), Small()]
    with torch.no_grad():
        models[1].matrix.mul_(-0.5)
    by_hand = [adamw_by_hand(copy.deepcopy(m), t, BATCHES) for m, t in zip(models, (one, other), strict=True)]
    found_RP = stacked(models, [one, other], BATCHES, backend=backend)
    for row, expected in enumerate(by_hand):
        assert found_RP[row].tolist() == pytest.approx(list(chain(*expected.values())), rel=1e-12, abs=1e-14)
    undecayed = adamw_by_hand(Small(), replace(one, weight_decay=0.0), BATCHES)
    changed = {name for name in undecayed if by_hand[0][name] != pytest.approx(undecayed[name], rel=1e-6)}
    assert {"slow", "matrix"} <= changed  # the decay is large enough to be seen


@pytest.mark.parametrize("backend", WAYS)
@pytest.mark.parametrize("clip", [0.0, 0.1, 1e3])
def test_it_equals_torchs_adamw_with_its_clipping(clip: float, backend: str) -> None:
    train = Train(steps=3, lr=0.1, lr_final=0.01, warmup=0.0, weight_decay=0.5, clip=clip)
    model = Small()
    groups = [
        {"params": [parameter], "weight_decay": 0.5 * decays, "multiplier": factor}
        for parameter, decays, factor in declared(model)
    ]
    optimizer = torch.optim.AdamW(groups, betas=train.betas, eps=train.eps)
    for step, tokens_B in enumerate(BATCHES):
        optimizer.zero_grad()
        model.loss(tokens_B).backward()
        nn.utils.clip_grad_norm_(model.parameters(), clip or math.inf)
        for group in optimizer.param_groups:
            group["lr"] = rate_at(train, step) * group["multiplier"]
        optimizer.step()
    assert torch.allclose(stacked([Small()], [train], BATCHES, backend=backend)[0], flat(model), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("backend", WAYS)
def test_a_held_replica_keeps_every_bit_whatever_its_gradient(backend: str) -> None:
    weight_RP = torch.randn(2, 5, generator=torch.Generator().manual_seed(0))
    before = weight_RP.clone()
    optimizer = AdamW(weight_RP, torch.ones(5), torch.ones(5), [Train(steps=4)] * 2, backend=backend)
    gradient_RP = torch.tensor([[1.0] * 5, [math.nan, math.inf, -math.inf, 0.0, 1.0]])
    ok_R, done_R = torch.tensor([True, False]), torch.zeros(2, dtype=torch.int64)
    optimizer.update(gradient_RP, norm_R=gradient_RP.norm(dim=1), step=torch.tensor(0), done_R=done_R, ok_R=ok_R)
    assert torch.equal(weight_RP[1], before[1])
    assert torch.equal(optimizer.mean_RP[1], torch.zeros(5)) and torch.equal(optimizer.square_RP[1], torch.zeros(5))
    assert not torch.equal(weight_RP[0], before[0]) and bool(weight_RP.isfinite().all())


@pytest.mark.skipif(bool(missing()), reason=missing())
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("weights", [1, 15, 16, 129, 40_001])
@pytest.mark.parametrize("factors", [False, True])
def test_in_c_it_is_what_torch_makes_of_it(weights: int, factors: bool, dtype: torch.dtype) -> None:
    """Three replicas, one of which is held at the second of four steps and then continues."""
    train = Train(steps=4, lr=0.1, lr_final=0.01, warmup=0.0, weight_decay=0.3, clip=0.5)
    trains = [train, replace(train, lr=0.02, betas=(0.4, 0.6), eps=1e-3), replace(train, clip=0.0, weight_decay=0.0)]
    decayed_P = (torch.arange(weights) % 3 > 0).to(dtype)
    multiplier_P = 1 + (torch.arange(weights) % 5).to(dtype) * factors
    start_RP, gradient_RPT = torch.randn(3, weights, dtype=dtype), torch.randn(3, weights, 4, dtype=dtype)
    made = [AdamW(start_RP.clone(), decayed_P, multiplier_P, trains, backend=backend) for backend in WAYS]
    done_R = torch.zeros(3, dtype=torch.int64)
    for step, gradient_RP in enumerate(gradient_RPT.unbind(2)):  # which lie apart
        ok_R = torch.tensor([True, step != 1, True])
        for optimizer in made:
            norm_R = gradient_RP.norm(dim=1)
            optimizer.update(gradient_RP, norm_R=norm_R, step=torch.tensor(step), done_R=done_R, ok_R=ok_R)
        done_R += ok_R
    assert [optimizer.kernels for optimizer in made] == [{"native_adamw"}, set()]
    tolerance = 1e-5 if dtype == torch.float32 else 1e-13
    for name in ("weight_RP", "mean_RP", "square_RP"):
        one, other = (getattr(optimizer, name) for optimizer in made)
        torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance)
        assert not torch.equal(one, start_RP)


@pytest.mark.skipif(bool(missing()), reason=missing())
def test_in_c_a_replica_takes_the_same_bits_alone_and_among_others() -> None:
    trains, start_RP = [Train(steps=3, lr=lr) for lr in (0.1, 0.01)], torch.randn(2, 77)
    ones_P, gradient_RP = torch.ones(77), torch.randn(2, 77)
    together = AdamW(start_RP.clone(), ones_P, ones_P, trains)
    alone = [AdamW(start_RP[row : row + 1].clone(), ones_P, ones_P, [train]) for row, train in enumerate(trains)]
    for step in range(3):
        for optimizer, rows in zip([together, *alone], (slice(0, 2), slice(0, 1), slice(1, 2)), strict=True):
            given, ones_R = gradient_RP[rows], torch.ones(len(gradient_RP[rows]))
            done_R, ok_R = torch.full_like(ones_R, step, dtype=torch.int64), ones_R > 0
            optimizer.update(given, norm_R=given.norm(dim=1), step=torch.tensor(step), done_R=done_R, ok_R=ok_R)
    assert torch.equal(together.weight_RP, torch.cat([optimizer.weight_RP for optimizer in alone]))


def test_every_model_declares_parameters_that_it_has() -> None:
    """Ask all models each time, since one that declares another cannot be trained at all."""
    for cls, *_ in all_models().values():
        assert len(list(declared(cls.tiny().build(7)))) > 0, cls.name
