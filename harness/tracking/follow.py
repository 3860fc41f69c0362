"""The process that copies runs to a tracker while another one trains them (harness/tracking/mirror.py starts it)."""

import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

from chomsky_ladder.harness.config import rooms
from chomsky_ladder.harness.store.folder import RunFolder
from chomsky_ladder.harness.tracking.card import Card, line
from chomsky_ladder.harness.tracking.tracker import Copy, find_tracker

_LOOKS_EVERY = 1.0  # seconds between two looks at the folders


def _follow(order: dict[str, Any], over: threading.Event) -> None:
    """Copy runs until each has ended or the training process has."""
    for plugin in order["plugins"]:
        rooms.load(plugin)
    tracker = find_tracker(order["tracker"])
    copies = []
    for card in order["cards"]:
        folder = RunFolder(Path(order["results"]), card["run_id"])
        copies.append(Copy(tracker, Card(**card), folder, mode=order["mode"], finish_within=order["patience"]))
    while copies:
        last = over.wait(_LOOKS_EVERY)
        copies = [copy for copy in copies if not copy.look(last=last)]
    tracker.close()


def _end_with(lifeline: int, over: threading.Event, patience: float) -> None:
    """Wait until the training process closes its end of the pipe or dies, then for what is left to be sent."""
    os.read(lifeline, 1)
    over.set()
    time.sleep(patience + 1)  # the training process waits a second less, if it lives
    os._exit(1)


def main() -> None:
    order, over = json.load(sys.stdin), threading.Event()
    said = os.dup(1)
    os.dup2(2, 1)  # the tracker's own output is discarded
    watch = threading.Thread(target=_end_with, args=(int(sys.argv[1]), over, order["patience"]), daemon=True)
    watch.start()
    try:
        _follow(order, over)
    except Exception as error:
        os.write(said, f"{line(error)}\n".encode())
        os._exit(1)  # a tracker's exit handlers would wait for its server


if __name__ == "__main__":
    main()
