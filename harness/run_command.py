"""`ladder run`: train and score one run."""

import sys

from harness import describe
from harness.arguments import parse_run
from harness.distributed import PeerLost, launched_rank
from harness.machine import find_device
from harness.options import take_flag
from harness.records import Busy
from harness.say import print_json
from harness.train import RunFailed, execute
from models._kernels import demand


def run(words: list[str]) -> int:
    as_json, quiet = take_flag(words, "--json"), take_flag(words, "--quiet")
    cell, settings = parse_run(words)
    demand(settings.backend, model=cell.model.name, device=find_device(settings.device))
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
    return 0 if result["status"] == "done" else 1
