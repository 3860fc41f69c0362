"""The CSV file of how far runs hold, a line for each bin of positions of each run.

run_id,step,state_bytes,holds_to,finite_to,without_mistake,commit,torch,device,from,to,answers,accuracy,scaled,commonest,drift
"""

from typing import Any

from chomsky_ladder.harness.inside.run_rows import made

OF_THE_RUN = ("run_id", "step", "state_bytes", "holds_to", "finite_to", "without_mistake")
OF_A_RANGE = ("from", "to", "answers", "accuracy", "scaled", "commonest", "drift")
COLUMNS = (*OF_THE_RUN, "commit", "torch", "device", *OF_A_RANGE)
LATER = ("drift",)


def rows_of(result: dict[str, Any]) -> list[dict[str, Any]]:
    run = {name: result[name] for name in OF_THE_RUN} | made(result)
    return [run | {name: each.get(name) for name in OF_A_RANGE} for each in result["bins"]]
