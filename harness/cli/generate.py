"""`ladder generate`: what a trained model writes, and whether another way of decoding would have been right."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tyro.conf import Positional

from chomsky_ladder.harness.cli.options import parse
from chomsky_ladder.harness.cli.say import print_json
from chomsky_ladder.harness.inside.settings import WrittenSettings
from chomsky_ladder.harness.store.folder import find_run
from chomsky_ladder.harness.store.places import default_results


@dataclass(frozen=True, kw_only=True)
class GenerateOptions(WrittenSettings):
    """Print strings that a trained model writes: greedily, at a temperature, or by beam search.

    Without --prompt the model answers test strings, and right answers are marked: `ladder generate RUN_ID --beam 4`.
    With a prompt it continues: `ladder generate RUN_ID --prompt "a b b" --temperature .8`.
    """

    run_id: Positional[str]
    """The run, by its id or a unique part of it."""
    results: Path = field(default_factory=default_results)
    """The folder of runs/."""
    json: bool = False
    """Print JSON."""


def generate(words: list[str]) -> int:
    options = parse(GenerateOptions, words, prog="ladder generate")
    from chomsky_ladder.harness.inside.written import written  # with torch
    from chomsky_ladder.harness.train.build import restored

    run, model, step = restored(find_run(options.results, options.run_id))
    found = {**written(run, model, options), "step": step}
    if options.json:
        return print_json(found)
    print(generated_text(found))
    return 0


def generated_text(found: dict[str, Any]) -> str:
    """Return the strings for a person: each prompt, what was written behind it, and a summary."""
    lines = [f"{found['run_id']} at step {found['step']:,}, {found['way']}"]
    for string in found["written"]:
        lines += ["", f"  {string['prompt']}"]
        if "answer" in string:
            lines.append(f"    answer  {string['answer']}")
        for one in string["said"]:
            verdict = "" if "right" not in one else "  right" if one["right"] else "  wrong"
            lines.append(f"    said    {one['said']}  (log p {one['log_p']:.2f}){verdict}")
    if "strings" in found:
        beam = f", and {found['right_in_beam']} are among those of the beam" if "beam" in found["way"] else ""
        symbols = f"{found['right_symbols']} of {found['symbols']} symbols"
        lines += ["", f"{found['right']} of {found['strings']} whole strings are right{beam}; {symbols}"]
    return "\n".join(lines)
