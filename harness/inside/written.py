"""Strings that a trained model writes: greedily, by sampling at a temperature, or by beam search.

    written(load(..), WrittenSettings(count=3, beam=4))  ->  three test strings, four continuations of each, best first

Without a prompt it writes the answers of test strings, and says which are right. Its output is fed back as the next
input. So the task's answers must be the next inputs, as in text, a game, or with `decode=teacher`.
"""

import math
from collections.abc import Sequence
from operator import eq
from pathlib import Path
from typing import Any, NamedTuple

import torch

from chomsky_ladder.harness.config.parts import require
from chomsky_ladder.harness.config.run import Run, without_training_targets
from chomsky_ladder.harness.inside.settings import WrittenSettings
from chomsky_ladder.harness.store.folder import find_run
from chomsky_ladder.harness.store.places import default_results
from chomsky_ladder.harness.train.build import restored
from chomsky_ladder.harness.train.generate import beam, greedy, sampled
from chomsky_ladder.models.base import Model
from chomsky_ladder.tasks.base import Batch, Task
from chomsky_ladder.tasks.draw import Draw
from chomsky_ladder.tasks.layout import Classification, Transduction

CONTINUED = 32  # tokens to write after a prompt, if the task does not fix the number


def written(run: Run, model: Model, how: WrittenSettings) -> dict[str, Any]:
    """Return the strings, each with its continuations, best first, and whether they are right."""
    task = without_training_targets(run.task)
    require(run.model.stepwise, f"{run.model.name} has no step form, so it writes nothing token by token")
    asked = [_prompted(task, how)] * (how.count if how.temperature else 1) if how.prompt else _from_test(task, run, how)
    strings = [_string(task, one, made) for one, made in zip(asked, _made(model, asked, how), strict=True)]
    told = [string["said"] for string in strings if "answer" in string]
    right = {
        "strings": len(told),
        "right": sum(said[0]["right"] for said in told),
        "right_in_beam": sum(any(one["right"] for one in said) for said in told),
        "symbols": sum(len(one.answer) for one in asked),
        "right_symbols": sum(said[0]["right_symbols"] for said in told),
    }
    return {"run_id": run.run_id, "way": how.way, **(right if told else {}), "written": strings}


class Asked(NamedTuple):
    prompt: tuple[int, ...]
    answer: tuple[int, ...]
    """The right tokens; empty if unknown."""
    new: int
    """The number of tokens to write."""


def _string(task: Task, asked: Asked, made: Sequence[tuple[list[int], float]]) -> dict[str, Any]:
    answer = list(asked.answer)
    said = [
        {"said": task.spelled(tokens), "log_p": round(log_p, 4)}
        | ({"right": tokens[: len(answer)] == answer, "right_symbols": sum(map(eq, tokens, answer))} if answer else {})
        for tokens, log_p in made
    ]
    return {"prompt": task.spelled(asked.prompt), **({"answer": task.spelled(answer)} if answer else {}), "said": said}


def _made(model: Model, asked: Sequence[Asked], how: WrittenSettings) -> list[list[tuple[list[int], float]]]:
    """Return the continuations of each string. Strings of one shape are written together."""
    found: dict[int, list[tuple[list[int], float]]] = {}
    shapes = {(len(one.prompt), how.new or one.new) for one in asked}
    for length, new in sorted(shapes):
        rows = [i for i, one in enumerate(asked) if (len(one.prompt), how.new or one.new) == (length, new)]
        prompt_BL = torch.tensor([asked[row].prompt for row in rows])
        if how.beam > 1:
            made = beam(model, prompt_BL, new=new, width=how.beam)
        elif how.temperature:
            of_rows = torch.tensor(rows)
            made = sampled(model, prompt_BL, new=new, seed=how.seed, temperature=how.temperature, rows_B=of_rows)
        else:
            made = greedy(model, prompt_BL, new=new)
        tokens_BWN, log_p_BW = made.tokens.view(len(rows), -1, new), made.log_p.view(len(rows), -1)
        for row, tokens_WN, log_p_W in zip(rows, tokens_BWN.tolist(), log_p_BW.tolist(), strict=True):
            pairs = zip(tokens_WN, log_p_W, strict=True)
            found[row] = [(tokens, log_p) for tokens, log_p in pairs if log_p > -math.inf]
    return [found[row] for row in range(len(asked))]


def _from_test(task: Task, run: Run, how: WrittenSettings) -> list[Asked]:
    """Return test strings of one length: the part before their answers, and the answers."""
    longest = how.length or run.train.lengths[1]
    legal = task.legal_lengths(1, longest)[-1:]
    require(legal == (longest,) or (bool(legal) and not how.length), f"{task.name} has no strings of length {longest}")
    draw = Draw(seed=run.eval.seed, split="test", rows_B=torch.arange(how.count))
    batch = task.sample(draw, torch.full((how.count,), legal[0]), task.positions(legal[0]))
    _refuse_blank_slots(task, batch)
    found = []
    for row in range(how.count):
        places = batch.scored_BL[row].nonzero()[:, 0]
        first = int(batch.prompt_B[row])
        if first == 1 and len(places) > 1:  # every token is an answer: continue from the first half
            first = len(places) // 2
        answer = batch.targets_BL[row, places[places >= first - 1]].tolist()
        found.append(Asked(tuple(batch.tokens_BL[row, :first].tolist()), tuple(answer), len(answer)))
    return found


def _refuse_blank_slots(task: Task, batch: Batch) -> None:
    """Refuse a task whose answers are not its next inputs. Its models have never read what they write."""
    scored_BL = batch.scored_BL
    follows_BL = scored_BL[:, 1:] & scored_BL[:, :-1]
    is_next_BL = batch.tokens_BL[:, 1:] == batch.targets_BL[:, :-1]
    if bool((scored_BL.sum(1) == 1).all()) or (bool(follows_BL.any()) and bool(is_next_BL[follows_BL].all())):
        return
    mend = "train it with --task.decode teacher" if isinstance(task, Transduction) else "they do not follow one another"
    raise ValueError(f"{task.name}: a model of it has not read its answers as inputs; {mend}")


def _prompted(task: Task, how: WrittenSettings) -> Asked:
    """Return the tokens of the user's prompt, followed by those that close a string of the task."""
    tokens = task.read(how.prompt)
    if not isinstance(task, Classification | Transduction):
        return Asked(tuple(tokens), (), CONTINUED)
    closing = list(task.closing)
    symbols = tokens[: len(tokens) - len(closing)] if closing and tokens[-len(closing) :] == closing else tokens
    return Asked((*symbols, *closing), (), int(task.slots(len(symbols))))


def generate(
    run_id: str,
    prompt: str = "",
    *,
    count: int = 5,
    length: int = 0,
    new: int = 0,
    temperature: float = 0.0,
    beam: int = 1,
    seed: int = 0,
    results: Path | str | None = None,
) -> dict[str, Any]:
    """Return what a trained run writes, as `ladder generate --json` prints it, for a notebook."""
    run, model, step = restored(find_run(Path(results or default_results()), run_id))
    how = WrittenSettings(
        prompt=prompt, count=count, length=length, new=new, temperature=temperature, beam=beam, seed=seed
    )
    return {**written(run, model, how), "step": step}
