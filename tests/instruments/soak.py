"""Share results folders between many commands for an hour, kill them at random moments, and find what is lost.

    python tests/instruments/soak.py --minutes 60 --out FOLDER [--seed 0] [--json]

A round of three minutes starts commands of `ladder` side by side on the folder `shared` and on `other`, whose disk is
small where a small one can be mounted. About half of them get SIGKILL, SIGTERM or SIGINT: after a while, or in the
middle of a write. Some may write no large files. Then the folders are left alone. A sweep of everything must end with
the bits of `reference`, which nobody disturbed; soak_checks.py holds the folders to it.

All choices come from the seed; the moments depend on the machine. Exit code 1 says that something was found.
"""

import argparse
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Any

import soak_checks as checks
from soak_commands import CELLS, KINDS, Command, Commands

SIGNALS = (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
MOMENTS = ("records.csv.lock", "*.part", "tables/*.part", "runs/*/*.part", "runs/.merging/*")  # files that appear
LOOKS = ("table", "table --all", "page")
AT_ONCE = 3  # commands
ALONE, PATIENCE = 60.0, 180.0  # seconds that workers have once their sweep was killed, and that a command has
ROUND, CHECK = 180.0, 60.0  # seconds of a round, and of the checks after it


class Soak:
    def __init__(
        self,
        out: Path,
        *,
        seed: int = 0,
        cells: str = CELLS,
        seeds: int = 3,
        kinds: Sequence[str] = tuple(KINDS),
        looks: Sequence[str] = LOOKS,
    ) -> None:
        self.out, self.seed, self.draw = out.absolute(), seed, random.Random(seed)
        self.kinds, self.looks = kinds, looks
        self.commands = Commands(self.out, self.draw, cells=cells, seeds=seeds)
        self.mark, self.tmp, self.reference = self.commands.mark, self.commands.tmp, self.out / "reference"
        self.shared, self.other = self.both = self.commands.shared, self.commands.other
        self.usual = {kind: seconds for kind, (_, seconds) in KINDS.items()}
        self.live: list[Command] = []
        self.started, self.signals, self.findings = Counter[str](), Counter[str](), Counter[str]()
        self.memory: dict[str, list[int]] = defaultdict(list)
        self.files: list[int] = []
        self.weights: list[str] = []
        self.aged: dict[Path, float] = {}
        self.rounds = self.trained = self.while_python_starts = 0
        self.has_disk = _mount("size=64m", self.other)

    def prepare(self) -> None:
        """Train everything in a folder that nobody disturbs."""
        place = ["--results", str(self.reference)]
        for words in (self.commands.sweep(0, self.reference), *([*look.split(), *place] for look in self.looks)):
            command = self.alone(words)
            assert command.process.returncode == 0, command.log.read_text()
        self.run_ids = sorted(path.name for path in (self.reference / "runs").iterdir())

    def close(self) -> None:
        for process in checks.processes_of(self.mark):
            _send(process, signal.SIGKILL)
        if self.has_disk:
            subprocess.run(["umount", "--lazy", str(self.other)], check=False)

    def round(self, seconds: float) -> None:
        """Start commands and kill them, until the time is over."""
        self.rounds += 1
        end, is_small = time.monotonic() + seconds, self.has_disk and self.draw.random() < 0.5
        if is_small:
            room = shutil.disk_usage(self.other).used // 1024 + self.draw.choice((50, 300, 700))
            _mount(f"remount,size={room}k", self.other)
        while time.monotonic() < end or self.live:
            self._reap()
            if time.monotonic() < end and len(self.live) < AT_ONCE:
                self._start_any(is_small)
            self._kill()
            time.sleep(0.004 if any(command.when for command in self.live) else 0.03)
        if is_small:
            _mount("remount,size=64m", self.other)

    def _start_any(self, is_small: bool) -> None:
        kind = self.draw.choices(self.kinds, [KINDS[kind][0] for kind in self.kinds])[0]
        limit = self.draw.choice((3, 10, 30, 60)) * 1000 if self.draw.random() < 0.08 else 0
        words = self.commands.words(kind, self.run_ids)
        command = self._start(kind, words, limit=limit, is_short=bool(limit) or (is_small and str(self.other) in words))
        if self.draw.random() < 0.5:
            command.number = self.draw.choice(SIGNALS)
            command.after = self.draw.uniform(0, 1.2 * self.usual[kind])
            if self.draw.random() < 0.4:
                command.when, command.after = self.draw.choice(MOMENTS), 1.5 * self.usual[kind]

    def _start(self, kind: str, words: list[str], *, limit: int = 0, is_short: bool = False) -> Command:
        self.started[kind] += 1
        self.live.append(self.commands.start(kind, words, limit=limit, is_short=is_short))
        return self.live[-1]

    def alone(self, words: Sequence[str]) -> Command:
        """Carry out a command beside no other."""
        command = self._start(f"{words[0]}, alone", list(words))
        while self.live:
            self._reap()
            time.sleep(0.02)
        return command

    def must(self, words: Sequence[str]) -> None:
        """Carry out a command that has to end well."""
        command = self.alone(words)
        if command.process.returncode != 0:
            self.found(str(command), f"left alone, it ends with exit code {command.process.returncode}")

    def _kill(self) -> None:
        """Send the signals that are due: one in five to all that live, one in five to a worker, too."""
        now = time.monotonic()
        for command in [each for each in self.live if each.number and not each.sent]:
            is_there = command.when and any(any(each.glob(command.when)) for each in self.both)
            if not is_there and now < command.since + command.after:
                continue
            draw = self.draw.random()
            for each in self.live if draw < 0.2 else [command]:
                self._signal(each, command.number)
            others = {*checks.processes_of(self.mark)} - {each.process.pid for each in self.live} if draw > 0.8 else ()
            if others:
                self.signals["SIGKILL of a worker"] += 1
                _send(self.draw.choice(sorted(others)), signal.SIGKILL)

    def _signal(self, command: Command, number: int) -> None:
        command.sent.append(number)
        self.signals[signal.Signals(number).name] += 1
        _send(command.process.pid, number)

    def _reap(self) -> None:
        """Judge the commands that have ended; stop those that never end."""
        for command in list(self.live):
            code = command.process.poll()
            if code is None:
                command.megabytes = max(command.megabytes, checks.megabytes_of(command.process.pid))
                if time.monotonic() > command.since + PATIENCE and signal.SIGKILL not in command.sent:
                    self.found(str(command), f"it hangs: no end within {PATIENCE:.0f} s")
                    self._signal(command, signal.SIGKILL)
                continue
            self.live.remove(command)
            if not command.sent:
                self.memory[command.kind].append(command.megabytes)
                took = time.monotonic() - command.since
                self.usual[command.kind] = 0.8 * self.usual.get(command.kind, took) + 0.2 * took
            said = command.log.read_text(errors="replace")
            self.trained += len(re.findall(r"^\[\d+/\d+\] .*test accuracy", said, flags=re.MULTILINE))
            if checks.is_pythons(said, command.sent):
                self.while_python_starts += 1
                continue
            for what in checks.judge(command.words[0], code, said, command.sent, is_short=command.is_short):
                self.found(str(command), what)

    def check(self) -> None:
        """Leave the folders alone, and hold them to what nobody disturbed."""
        before, end = self.findings.total(), time.monotonic() + ALONE
        while (left := checks.processes_of(self.mark)) and time.monotonic() < end:
            time.sleep(0.2)
        for process in left:
            self.found("processes", f"left behind: {checks.words_of(process)}")
            _send(process, signal.SIGKILL)
        for folder in self.both:
            self.must(self.commands.sweep(0, folder))
        for folder, source in (self.both, self.both[::-1]):
            place = ["--results", str(folder)]
            self.must(["merge", str(source), *place])  # which removes what a killed one has left
            self.must(["reproduce", self.draw.choice(self.run_ids), "--quiet", "--device", "cpu", *place])
            status = json.loads(self.alone(["status", "--json", *place]).log.read_text())
            if status["counts"] != {"done": len(self.run_ids)} or status["only_in_records"]:
                self.found(f"{folder.name}/", f"not everything is done: {status['counts']}")
            for look in self.looks:
                self._look_twice(folder, [*look.split(), *place])
            self.compare(folder)
        if len(list(self.tmp.iterdir())) > self.signals.total() + 1:  # a killed `reproduce` leaves a folder
            self.found("tmp/", f"{len(list(self.tmp.iterdir()))} files are left behind")
        self.files.append(sum(1 for folder in self.both for _ in folder.rglob("*")))
        _empty(self.tmp)
        if self.findings.total() > before:  # keep what was found, and begin anew
            for folder in self.both:
                shutil.copytree(folder, self.out / "found" / f"round-{self.rounds}" / folder.name)
                _empty(folder)

    def compare(self, folder: Path) -> None:
        """Compare every file of a folder in which all is done with the reference."""
        for where, what in checks.compare(folder, self.reference, self.run_ids, self.weights):
            self.found(where, what)
        for where, what in checks.left_behind(folder, self.reference, self.aged):
            self.found(where, what)

    def _look_twice(self, folder: Path, words: list[str]) -> None:
        made: list[dict[Path, bytes]] = []
        for _ in range(2):
            log = self.alone(words).log
            files = {path: path.read_bytes() for path in (*folder.glob("*.*"), *folder.glob("tables/*"))}
            made.append(files | {Path("its output"): log.read_bytes()})
        if apart := [str(path) for path in made[0] if made[0][path] != made[1].get(path)]:
            self.found(f"ladder {' '.join(words)}", f"made twice, these differ: {apart}")

    def thin_out(self) -> None:
        """Remove some of the runs, so that there is something to train."""
        for folder in self.both:
            some = self.draw.sample(self.run_ids, self.draw.randint(len(self.run_ids) // 3, len(self.run_ids)))
            if there := [each for each in some if (folder / "runs" / each).exists()]:
                self.alone(["clean", *there, "--yes", "--results", str(folder)])

    def found(self, where: str, what: str) -> None:
        if not self.findings[f"{where}: {what}"]:
            print(f"FOUND in round {self.rounds}, seed {self.seed}: {where}: {what}", flush=True)
        self.findings[f"{where}: {what}"] += 1

    def summary(self) -> dict[str, Any]:
        return {
            "rounds": self.rounds,
            "commands": dict(self.started),
            "signals": dict(self.signals),
            "runs trained": self.trained,
            "weights compared and equal": len(self.weights),
            "memory in MB, median": {kind: median(sizes) for kind, sizes in self.memory.items()},
            "files after each round": self.files,
            "parts of killed writers that were aged": len(self.aged),
            "Ctrl-C while Python starts": self.while_python_starts,
            "small disk": "mounted" if self.has_disk else "cannot be mounted here: files had limits alone",
            "findings": dict(self.findings),
        }


def _mount(options: str, folder: Path) -> bool:
    words = ["mount", "-t", "tmpfs", "-o", options, "none", str(folder)]
    try:
        return subprocess.run(words, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def _send(process: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(process, number)


def _empty(folder: Path) -> None:
    for path in folder.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--out", type=Path, required=True, help="a folder that is not there yet")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="print the summary as JSON")
    options = parser.parse_args(words)
    if options.out.exists():
        parser.error(f"{options.out} is there already: name a new folder")
    end, soak = time.monotonic() + 60 * options.minutes, Soak(options.out, seed=options.seed)
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # by way of `finally`
    try:
        soak.prepare()
        while time.monotonic() < end:
            soak.round(min(ROUND, max(20.0, end - time.monotonic() - CHECK)))
            soak.check()
            print(f"round {soak.rounds}: {soak.started.total()} commands, {soak.signals.total()} signals", flush=True)
            soak.thin_out()
        for where, what in checks.grown(soak.memory, soak.files):
            soak.found(where, what)
    finally:
        soak.close()
    summary = soak.summary()
    print(json.dumps(summary, indent=1) if options.json else "\n".join(f"{k}: {v}" for k, v in summary.items()))
    return 1 if soak.findings else 0


if __name__ == "__main__":
    sys.exit(main())
