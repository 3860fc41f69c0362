"""The process in which Triton interprets. It has imported what all such tests need, and forks for each file.

It also runs what is compiled for a GPU on a CPU (tests/instruments/compiled_on_a_cpu.py).

    ["tests/models/test_triton_machines.py", "tape"]  ->  [0, what the file printed, what it said of errors]

A line of standard input is a file and its arguments, a line of standard output its exit status and what it wrote.
"""

import json
import os
import runpy
import signal
import sys
import tempfile

import torch._dynamo

import support.triton_kernels  # with torch, Triton and the harness, which take seconds

PATIENCE_S = 3600  # of a file with every case, on a busy machine


def ran(file: str, *arguments: str) -> tuple[int, str, str]:
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        child = os.fork()
        if not child:
            os.dup2(out.fileno(), 1)
            os.dup2(err.fileno(), 2)
            signal.alarm(PATIENCE_S)
            sys.argv = [file, *arguments]
            os._exit(_status(file))
        _, status = os.waitpid(child, 0)
        out.seek(0)
        err.seek(0)
        return os.waitstatus_to_exitcode(status), out.read(), err.read()


def _status(file: str) -> int:
    try:
        runpy.run_path(file, run_name="__main__")
    except BaseException:
        sys.excepthook(*sys.exc_info())
        return 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    return 0


if __name__ == "__main__":
    assert support.triton_kernels and torch._dynamo  # the latter is what sums under vmap import
    for line in sys.stdin:
        print(json.dumps(ran(*json.loads(line))), flush=True)
