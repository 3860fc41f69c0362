"""Strings made with a state are those made without one, and a beam wide enough finds the best of all."""

import itertools
import math

import pytest
import torch
from torch import Tensor, nn

from chomsky_ladder.harness.config.registry import all_models
from chomsky_ladder.harness.train.generate import beam, drawn, fed_back, greedy, row_axes, sampled, start, taken
from chomsky_ladder.models.base import ModelConfig
from chomsky_ladder.models.block import Context
from chomsky_ladder.models.encoder import EncoderConfig
from chomsky_ladder.models.lstm import LSTMConfig
from chomsky_ladder.models.transformer import TransformerConfig
from chomsky_ladder.tasks.draw import NumpyDraw
from support.cases import some

VOCAB, NEW = 5, 4
CONFIGS = [classes[0].tiny() for _, classes in sorted(all_models().items())]
STEPWISE = [config for config in CONFIGS if config.stepwise]
FEW = [LSTMConfig(d_model=8), TransformerConfig(d_model=8, num_heads=2)]


def built(config: ModelConfig, vocab: int = VOCAB) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        model = config.build(vocab).double()
        with torch.no_grad():  # far from uniform, so that what is said depends on what was
            model.head.weight.mul_(3)
    return model.eval()


def prompts(rows: int, length: int, vocab: int = VOCAB) -> Tensor:
    return torch.randint(vocab, (rows, length), generator=torch.Generator().manual_seed(1))


@torch.no_grad()
def log_probabilities(model: nn.Module, tokens: list[int]) -> Tensor:
    """Return the log probability of every next token, from one pass over the string alone."""
    return model(torch.tensor([tokens]), Context(backend="reference"))[0, -1].log_softmax(-1)


def scored(model: nn.Module, prompt: list[int], string: tuple[int, ...]) -> float:
    places = range(len(string))
    return math.fsum(float(log_probabilities(model, [*prompt, *string[:n]])[string[n]]) for n in places)


@pytest.mark.parametrize("config", some(STEPWISE), ids=lambda config: config.name)
def test_a_batch_with_a_state_says_what_each_string_anew_does(config: ModelConfig) -> None:
    """Greedy, drawn and along a beam of 2, against a loop over single strings that never keeps a state."""
    model, prompt_BL = built(config), prompts(2, 4)
    found = greedy(model, prompt_BL, new=NEW)
    uniform = NumpyDraw(seed=5, split="generate", rows_B=torch.arange(2).numpy()).uniform((NEW,))
    hot = sampled(model, prompt_BL, new=NEW, seed=5, temperature=1.7)
    for row, prompt in enumerate(prompt_BL.tolist()):
        said: list[int] = []
        for place in range(NEW):
            said.append(int(log_probabilities(model, prompt + said).argmax()))
            before = hot.tokens[row, :place].tolist()
            shares = (log_probabilities(model, prompt + before) / 1.7).softmax(-1).tolist()
            ends = list(itertools.accumulate(shares))
            expected = next(i for i, end in enumerate(ends) if end > uniform[row, place])
            assert hot.tokens[row, place] == expected
        assert found.tokens[row].tolist() == said
        assert found.log_p[row].item() == pytest.approx(scored(model, prompt, tuple(said)), abs=1e-9)
        assert hot.log_p[row].item() == pytest.approx(scored(model, prompt, tuple(hot.tokens[row].tolist())), abs=1e-9)
    searched = beam(model, prompt_BL, new=3, width=2)
    for row, prompt in enumerate(prompt_BL.tolist()):
        assert_beam(searched.tokens[row], searched.log_p[row], slow_beam(model, prompt, new=3, width=2))


def slow_beam(model: nn.Module, prompt: list[int], *, new: int, width: int) -> list[tuple[float, tuple[int, ...]]]:
    beams: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
    for _ in range(new):
        further = [
            (score + float(value), (*string, token))
            for score, string in beams
            for token, value in enumerate(log_probabilities(model, [*prompt, *string]))
        ]
        beams = sorted(further, key=lambda pair: -pair[0])[:width]
    return beams


def assert_beam(tokens_WN: Tensor, log_p_W: Tensor, expected: list[tuple[float, tuple[int, ...]]]) -> None:
    assert [tuple(string) for string in tokens_WN.tolist()] == [string for _, string in expected]
    assert log_p_W.tolist() == pytest.approx([score for score, _ in expected], abs=1e-9)


@pytest.mark.parametrize("config", FEW, ids=lambda config: config.name)
def test_a_wide_beam_equals_exhaustive_search(config: ModelConfig) -> None:
    model, vocab, new = built(config, 3), 3, 3
    prompt_BL = prompts(2, 3, vocab)
    strings = list(itertools.product(range(vocab), repeat=new))
    found = beam(model, prompt_BL, new=new, width=len(strings))
    for row, prompt in enumerate(prompt_BL.tolist()):
        best = sorted(((scored(model, prompt, string), string) for string in strings), key=lambda pair: -pair[0])
        assert_beam(found.tokens[row], found.log_p[row], best)
    narrow = beam(model, prompt_BL, new=new, width=1)
    assert torch.equal(narrow.tokens[:, 0], greedy(model, prompt_BL, new=new).tokens)


@pytest.mark.parametrize("config", FEW, ids=lambda config: config.name)
def test_with_a_stop_a_wide_beam_equals_exhaustive_search(config: ModelConfig) -> None:
    """Over all strings that end at their first stop or are of full length."""
    model, vocab, new, stop = built(config, 3), 3, 4, 2
    prompt = prompts(1, 3, vocab)[0].tolist()
    strings = {
        string[: string.index(stop) + 1] if stop in string else string
        for string in itertools.product(range(vocab), repeat=new)
    }
    best = sorted(((scored(model, prompt, string), string) for string in strings), key=lambda pair: -pair[0])
    assert {len(string) for _, string in best} == {1, 2, 3, 4}
    filled = [(score, string + (stop,) * (new - len(string))) for score, string in best]
    found = beam(model, torch.tensor([prompt]), new=new, width=len(strings) + 4, stop=stop)
    assert_beam(found.tokens[0, : len(filled)], found.log_p[0, : len(filled)], filled)
    assert (found.log_p[0, len(filled) :] == -math.inf).all()


def test_after_its_stop_a_string_is_over() -> None:
    model, prompt_BL = built(FEW[0]), prompts(16, 3)
    free = sampled(model, prompt_BL, new=12, seed=1)
    stopped = sampled(model, prompt_BL, new=12, seed=1, stop=2)
    ended = 0
    for row, prompt in enumerate(prompt_BL.tolist()):
        string = free.tokens[row].tolist()
        kept = string[: string.index(2) + 1] if 2 in string else string
        ended += len(kept) < 12
        assert stopped.tokens[row].tolist() == kept + [2] * (12 - len(kept))
        assert stopped.log_p[row].item() == pytest.approx(scored(model, prompt, tuple(kept)), abs=1e-9)
    assert ended > 0


def test_a_string_is_the_same_in_any_batch_and_another_for_another_seed() -> None:
    model, prompt_BL = built(FEW[1]), prompts(8, 3)
    torch.manual_seed(0)
    whole = sampled(model, prompt_BL, new=9, seed=4)
    torch.manual_seed(1)
    part = sampled(model, prompt_BL[5:7], new=9, seed=4, rows_B=torch.tensor([5, 6]))
    assert torch.equal(part.tokens, whole.tokens[5:7])
    assert not torch.equal(sampled(model, prompt_BL, new=9, seed=5).tokens, whole.tokens)


def test_draws_follow_the_probabilities() -> None:
    logits_V = torch.tensor([0.0, -math.inf, 1.0, -1.0])
    uniform_B = (torch.arange(100_000) + 0.5) / 100_000
    found = drawn(logits_V.expand(len(uniform_B), -1), uniform_B).bincount(minlength=4) / len(uniform_B)
    torch.testing.assert_close(found, logits_V.softmax(-1), atol=2e-5, rtol=0)
    assert drawn(logits_V[None], torch.tensor([0.0])).item() == 0
    assert drawn(torch.tensor([[-math.inf, 0.0]]), torch.tensor([0.0])).item() == 1


def test_the_cold_limit_is_greedy() -> None:
    model, prompt_BL = built(FEW[0]), prompts(4, 3)
    cold = sampled(model, prompt_BL, new=NEW, seed=0, temperature=1e-6)
    assert torch.equal(cold.tokens, greedy(model, prompt_BL, new=NEW).tokens)


def test_what_is_free_is_what_was_said() -> None:
    model, tokens_BL = built(FEW[0]), prompts(2, 7)
    free_BL = torch.zeros(2, 7, dtype=torch.bool)
    free_BL[:, 4:] = True
    with torch.no_grad():
        logits_BLV, heard_BL = fed_back(model, tokens_BL, free_BL, backend="auto")
    assert torch.equal(heard_BL[:, :4], tokens_BL[:, :4])
    assert torch.equal(heard_BL[:, 4:], logits_BLV[:, 3:-1].argmax(-1))
    assert torch.equal(heard_BL[:, 4:], greedy(model, tokens_BL[:, :4], new=3).tokens)


def test_rows_of_a_state_can_be_taken_in_any_order() -> None:
    for config in STEPWISE:
        model, prompt_BL = built(config), prompts(3, 5)
        picked = torch.tensor([2, 0, 0, 1])
        with torch.no_grad():
            _, state = model.extend(prompt_BL, start(model, 3, max_length=6), Context())
            found, _ = model.step(picked, taken(state, row_axes(model), picked), Context())
            _, own = model.extend(prompt_BL[picked], start(model, 4, max_length=6), Context())
            expected, _ = model.step(picked, own, Context())
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9, msg=config.name)


def test_mistakes_are_one_line() -> None:
    encoder, model = built(EncoderConfig(d_model=8, num_heads=2)), built(FEW[0])
    with pytest.raises(ValueError, match="encoder has no step form"):
        greedy(encoder, prompts(1, 2), new=1)
    with pytest.raises(ValueError, match="a token or more"):
        greedy(model, prompts(1, 2), new=0)
    with pytest.raises(ValueError, match="temperature must be positive, not 0"):
        sampled(model, prompts(1, 2), new=1, seed=0, temperature=0)
    with pytest.raises(ValueError, match="at least 1 wide"):
        beam(model, prompts(1, 2), new=1, width=0)
    short = built(TransformerConfig(d_model=8, num_heads=2, positions="learnt", max_length=4))
    with pytest.raises(ValueError, match="no more than 4 positions"):
        greedy(short, prompts(1, 2), new=3)
