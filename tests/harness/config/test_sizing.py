"""Models of a given size: widths found, counted as built, the same however often they are asked for."""

import subprocess
import sys
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import fields, replace

import pytest
import torch

from chomsky_ladder.harness.cli.main import main
from chomsky_ladder.harness.config import sizing
from chomsky_ladder.harness.config.registry import all_models
from chomsky_ladder.harness.config.sizing import active_parameters, parse_count, report, sized, total_parameters
from chomsky_ladder.models.backbone import count_parameters
from chomsky_ladder.models.base import ModelConfig
from chomsky_ladder.models.lstm import LSTMConfig
from chomsky_ladder.models.moe import MoEConfig
from chomsky_ladder.models.transformer import TransformerConfig
from support.cases import full, some

CONFIGS = {name: classes[0]() for name, classes in sorted(all_models().items())}
CONTINUOUS = [name for name, config in CONFIGS.items() if any(field.name == "d_inner" for field in fields(config))]


@pytest.mark.parametrize("name", some(CONFIGS))
@pytest.mark.parametrize(("target", "far"), [(100_000, 3), full(1_000_000, 64)])
def test_the_nearest_size_is_found(name: str, target: int, far: int) -> None:
    found = sized(CONFIGS[name], vocab=12, target=target)
    gap = abs(active_parameters(found, 12) - target)
    if name in CONTINUOUS:
        assert gap <= 0.02 * target
    up, down = range(found.d_model + 1, found.d_model + 65), range(found.d_model - 1, max(found.d_model - 65, 0), -1)
    near = [other for widths in (up, down) for other in admitted(CONFIGS[name], widths)[:far]]
    assert near and all(gap <= abs(active_parameters(other, 12) - target) for other in near)  # no other width is nearer


def admitted(config: ModelConfig, widths: Iterable[int]) -> list[ModelConfig]:
    """Return the config at each width that its other settings allow."""
    found = []
    for width in widths:
        with suppress(ValueError):
            found.append(replace(config, d_model=width))
    return found


@pytest.mark.parametrize("name", some(CONFIGS))
def test_a_count_without_storage_is_the_count_of_the_model(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sizing, "SMALL", 0)
    sizing.total_parameters.cache_clear()
    config = sized(CONFIGS[name], vocab=7, target=30_000)
    before = torch.get_rng_state()
    total = total_parameters(config, 7)
    assert torch.equal(torch.get_rng_state(), before)
    assert total == count_parameters(config.build(7))


def test_a_mixture_is_matched_by_what_a_token_uses() -> None:
    config = MoEConfig(d_model=32, num_blocks=3, num_heads=2, num_experts=5, top_k=2, d_inner=10)
    expert = 3 * 32 * 10
    assert total_parameters(config, 9) - active_parameters(config, 9) == 3 * 3 * expert
    found = sized(MoEConfig(), vocab=9, target=200_000)
    assert f" active of {total_parameters(found, 9):,} parameters" in report(found, vocab=9, target=200_000)


def test_other_settings_stay() -> None:
    config = TransformerConfig(num_blocks=5, num_heads=2)
    found = sized(config, vocab=12, target=300_000)
    assert replace(found, d_model=config.d_model, d_inner=config.d_inner) == config


@pytest.mark.parametrize(("text", "count"), [("100k", 100_000), ("1.5M", 1_500_000), ("77", 77), (" 2m ", 2_000_000)])
def test_a_number_of_parameters(text: str, count: int) -> None:
    assert parse_count(text) == count


@pytest.mark.parametrize("text", ["", "k", "-5", "0", "1e3", "10 000", "many", "0.1"])
def test_no_number_of_parameters(text: str) -> None:
    with pytest.raises(ValueError, match="takes a number of parameters such as 100k"):
        parse_count(text)


def test_an_impossible_size_says_how_far_off_it_is() -> None:
    found = sized(LSTMConfig(), vocab=12, target=3)
    assert found.d_model == 1 and "+1500.0 % of 3" in report(found, vocab=12, target=3)


def test_the_run_has_the_widths_and_not_the_number(capsys: pytest.CaptureFixture[str], tmp_path: object) -> None:
    words = ["--train.steps", "1", "--eval.test", "4", "--eval.validation", "4", "--eval.extrapolate", "41"]
    words += ["--exec.results", str(tmp_path), "--exec.device", "cpu", "--quiet", "--json"]
    assert main(["run", "parity", "lstm", "--model.params", "5k", *words]) == 0
    one = capsys.readouterr()
    assert "lstm: d_model 17: 4,862 parameters, -2.8 % of 5,000" in one.err
    assert main(["run", "parity", "lstm", "--model.d-model", "17", *words]) == 0
    assert capsys.readouterr().out == one.out


@pytest.mark.parametrize(("asked", "nearest"), [("3", "18"), ("900000M", "34,293,316,992")])
def test_a_size_that_no_width_comes_near_is_refused(
    asked: str, nearest: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "parity", "lstm", "--model.params", asked, "--model.num-blocks", "1"]) == 2
    said = capsys.readouterr().err
    assert f"--model.params {asked}: no width brings lstm nearer than {nearest} parameters" in said


def test_a_width_beside_a_size_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "parity", "lstm", "--model.params", "5k", "--model.d-model", "17"]) == 2
    assert "leave out --model.d-model" in capsys.readouterr().err
    assert main(["describe", "parity", "--model.params", "5k"]) == 2  # a task has no parameters
    capsys.readouterr()
    assert main(["describe", "lstm", "--model.params", "5k"]) == 0
    assert "  5168" in capsys.readouterr().out


def test_every_config_counts_no_more_idle_than_it_has() -> None:
    for config in CONFIGS.values():
        assert isinstance(config, ModelConfig)
        assert 0 <= config.idle_parameters < total_parameters(config, 12)


@pytest.mark.full
def test_a_process_of_a_sweep_imports_no_compiler() -> None:
    code = "import sys; from chomsky_ladder.harness.config.protocols import preset_run\n"
    code += "preset_run('even_pairs', 'rwkv7', protocol='climb-v1'); print({'sympy', 'torch._dynamo'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


@pytest.mark.parametrize("small", [0, 1 << 40])
def test_a_size_is_the_same_however_it_is_counted(small: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sizing, "SMALL", small)
    sizing.total_parameters.cache_clear()
    found = sized(TransformerConfig(), vocab=12, target=30_000)
    assert (found.d_model, found.d_inner, sizing.total_parameters(found, 12)) == (40, 67, 30_040)
    sizing.total_parameters.cache_clear()
