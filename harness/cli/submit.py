"""`ladder submit` puts a climb into a folder for others; `ladder verify` checks one and trains some of it again."""

import json
import secrets
import shlex
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tyro.conf import Positional

from chomsky_ladder.harness.cli.options import asks_for_help, parse
from chomsky_ladder.harness.cli.say import duration, print_json
from chomsky_ladder.harness.store.files import write_atomically
from chomsky_ladder.harness.store.places import default_results

CLIMB = "climb-v1"
WIDTH = len("table and card")  # of the longest name of a check


@dataclass(kw_only=True)
class SubmitOptions:
    """Write the finished climb of a model to a folder that others can verify.

    The folder has a card, the table, the records, the config and counts of every run, the packages that were
    installed, and the code of the model if it is yours. It holds no weights.

    ladder climb mine.py:Mine && ladder submit mine.py:Mine --name Mine --cite "our paper"
    """

    name: str
    """The name that the table shows."""
    cite: str
    """The paper or repository to cite."""
    protocol: str = CLIMB
    """The climb's protocol."""
    results: Path = field(default_factory=default_results)
    """The results folder with the climb's runs."""
    out: Path | None = None
    """The new folder; without it submission/NAME."""


def submit(words: list[str]) -> int:
    names = [] if not words or words[0].startswith("-") else [words.pop(0)]
    if asks_for_help(words) and not names:
        parse(SubmitOptions, words, prog="ladder submit MODEL")
    if not names:
        raise ValueError("which model? `ladder submit MODEL --name NAME --cite TEXT`")
    options, model = _parsed(names[0], words)
    for name in ("name", "cite"):
        if not getattr(options, name).strip() or not getattr(options, name).isprintable():
            raise ValueError(f"--{name} is a line of text, not {getattr(options, name)!r}")
    from chomsky_ladder.harness.figures.names import folder_name
    from chomsky_ladder.harness.submit.bundle import bundle

    out = options.out or Path("submission") / folder_name(options.name)
    made = bundle(model, options.protocol, options.results, name=options.name, cite=options.cite, out=out)
    size = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
    print(f"{out}: {len(made.files)} files, {size / 2**20:.1f} MiB")
    print(f"check it: {_verify_command(out, made.plugins)}")
    return 0


def _parsed(name: str, words: list[str]) -> tuple[Any, Any]:
    from chomsky_ladder.harness.cli.arguments import at_size_of, with_climber

    options = parse(with_climber(SubmitOptions, name, words), words, prog=f"ladder submit {name}")
    return options, at_size_of(options.protocol, options.model, words)


def _verify_command(folder: Path, plugins: list[str]) -> str:
    named = [word for plugin in plugins for word in ("--plugin", _place(folder, plugin))]
    return shlex.join(["ladder", "verify", str(folder), *named])


def _place(folder: Path, plugin: str) -> str:
    """Return the word that loads a plugin from the folder; a module's name stays."""
    from chomsky_ladder.harness.submit.manifest import SOURCE

    file = folder / SOURCE / (plugin if (folder / SOURCE / plugin).exists() else plugin.rpartition(":")[0] or plugin)
    return str(folder / SOURCE / plugin) if file.exists() else plugin


@dataclass
class VerifyOptions:
    """Check a submission: its files, runs, counts, records and code; then train some of its cells again.

    The cells are drawn at random, and their models are also scored on test strings of a random seed. Loading the code
    of a submission runs it: read it, or use a container. Exit code 0: every check passed. 1: one failed.

    ladder verify submission/Mine --plugin submission/Mine/source/mine.py:Mine
    """

    folder: Positional[Path]
    """The folder that `ladder submit` wrote."""
    retrain: int = 2
    """Cells to train again; 0 for none."""
    draw: int | None = None
    """Seed of the draw and of the hidden strings; without it, a random one, which is printed."""
    device: str = "auto"
    """cpu, cuda, cuda:1 ..; auto takes CUDA where there is one."""
    out: Path | None = None
    """Also write the outcome to this file, as JSON."""
    json: bool = False
    """Print JSON."""


def verify(words: list[str]) -> int:
    if not words:
        raise ValueError("ladder verify needs the FOLDER of a submission (`ladder submit` writes one)")
    options = parse(VerifyOptions, words, prog="ladder verify")
    if options.retrain < 0:
        raise ValueError(f"--retrain is how many cells, 0 for none, not {options.retrain}")
    if options.draw is not None and options.draw < 1:
        raise ValueError(f"--draw is a number from 1 on, not {options.draw}")
    from chomsky_ladder.harness.submit.manifest import Manifest
    from chomsky_ladder.harness.submit.received import digest_of

    if not options.folder.is_dir():
        raise ValueError(f"there is no folder {options.folder}")
    manifest = Manifest.read(options.folder)
    _refuse_unknown(options.folder, manifest)
    draw = options.draw or secrets.randbelow(2**31 - 1) + 1
    found = list(_checked(options, manifest, draw))
    failed = [check.name for check in found if not check.passed]
    tree = {
        "submission": manifest.name,
        "model": manifest.model,
        "protocol": manifest.protocol,
        "manifest": digest_of(options.folder),
        "draw": draw,
        "passed": not failed,
        "checks": [vars(check) for check in found],
    }
    if options.out:
        write_atomically(options.out, (json.dumps(tree, indent=1) + "\n").encode())
    if options.json:
        print_json(tree)
    else:
        print(f"{manifest.name}: {'FAILED: ' + ', '.join(failed) if failed else f'all {len(found)} checks passed'}")
    return 1 if failed else 0


def _checked(options: VerifyOptions, manifest: Any, draw: int) -> Any:
    """Yield the checks, and print each as soon as it is known."""
    from chomsky_ladder.harness.submit.checks import checks
    from chomsky_ladder.harness.submit.retrain import drawn, retrained

    passed = True
    for check in checks(options.folder, manifest):
        yield _said(check, options)
        passed = passed and check.passed
    if not passed or not options.retrain:
        return
    cells = drawn(options.folder, manifest, options.retrain, draw)
    took = duration(sum(one.seconds for one in cells))
    print(f"training {len(cells)} cells again, drawn with --draw {draw}: {took} for the submitter", file=sys.stderr)
    for one in cells:
        for check in retrained(options.folder, one, hidden=draw, device=options.device):
            yield _said(check, options)


def _said(check: Any, options: VerifyOptions) -> Any:
    if not options.json:
        print(f"  {'ok' if check.passed else 'FAIL':4}  {check.name:{WIDTH}}  {check.said}")
    return check


def _refuse_unknown(folder: Path, manifest: Any) -> None:
    """Refuse a model whose code nobody has loaded; a submission's code runs only if it is named."""
    from chomsky_ladder.harness.config.registry import find_model
    from chomsky_ladder.harness.store.files import read_json

    names = {str((read_json(path) or {}).get("model", {}).get("name")) for path in folder.glob("runs/*/config.json")}
    for name in sorted(names):
        try:
            find_model(name)
        except ValueError:
            if not manifest.plugins:
                raise
            raise ValueError(
                f"the model {name} is the submission's own code: read {folder / 'source'}, then "
                f"`{_verify_command(folder, manifest.plugins)}`"
            ) from None
