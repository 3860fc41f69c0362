"""`ladder run`: train and score one run."""

import sys

from chomsky_ladder.harness.cli import describe
from chomsky_ladder.harness.cli.arguments import advice, parse_run
from chomsky_ladder.harness.cli.options import take_flag
from chomsky_ladder.harness.cli.say import print_json
from chomsky_ladder.harness.cli.track import say_where
from chomsky_ladder.harness.conform.before import refuse_leaks
from chomsky_ladder.harness.store.folder import Busy
from chomsky_ladder.harness.store.places import refuse_unwritable
from chomsky_ladder.harness.train.distributed import PeerLost, launched_rank
from chomsky_ladder.harness.train.loop import RunFailed, execute
from chomsky_ladder.harness.train.workable import preflight


def run(words: list[str]) -> int:
    as_json, quiet = take_flag(words, "--json"), take_flag(words, "--quiet")
    cell, settings = parse_run(words)
    if launched_rank() == 0:
        preflight([cell], settings)
        refuse_leaks([cell], settings)
        refuse_unwritable(settings.results)  # before anything is said, and behind what may be refused without a trace
        for line in () if quiet else advice(words, cell, settings):
            print(line, file=sys.stderr)
    try:
        result = execute(cell, settings, quiet=quiet)
    except Busy as busy:
        raise ValueError(str(busy)) from None
    except (RunFailed, PeerLost) as failed:
        if launched_rank() == 0:
            print(f"ladder: {failed}", file=sys.stderr)
        return 1
    if launched_rank() == 0:  # of several processes one speaks
        if as_json:
            print_json(result)
        else:
            print(describe.outcome(result, settings.results))
        if not quiet:
            say_where(settings)
    return 0 if result["status"] == "done" else 1
