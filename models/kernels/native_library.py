"""The library of the kernels in C: compiled by the machine's own compiler when first asked for, and kept.

The sources of all operations are compiled once for float and once for double, for this very processor. A library is
kept under the hash of the sources, the flags and what the compiler says of itself and of the processor. This file needs
nothing but Python, so that it can run while packages are installed: as a script it compiles both.

A wheel for a platform brings libraries for any processor of a kind, which serve where no compiler is. This makes them:

    python models/kernels/native_library.py models/kernels/prebuilt
"""

import contextlib
import fcntl
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).parent
_OPERATIONS = HERE.parent / "operations"
FILES = {path.name: path for room in (HERE, _OPERATIONS) for path in room.rglob("_native*.[ch]")}
for _path in _OPERATIONS.glob("*/*.c"):
    FILES[f"_native_{_path.parent.name if _path.name == 'cpu.c' else _path.stem}.c"] = _path
FILES = dict(sorted(FILES.items()))
"""Sources and headers in the order in which they are hashed: by the names they had when all lay in one folder."""
SOURCES = [name for name in FILES if name.endswith(".c")]
FLAGS = (
    *("-O3", "-march=native", "-fopenmp-simd", "-fno-math-errno", "-fno-trapping-math"),
    # For AMD's processors GCC would part products from sums where one sum waits for itself: a row of a product would
    # not be the same beside any others.
    *("-ffp-contract=fast", "--param=avoid-fma-max-bits=0", "-shared", "-fPIC"),
    # For Intel's processors GCC would make halves, which a whole vector then waits for.
    *(["-mprefer-vector-width=512"] if platform.machine() in ("x86_64", "AMD64") else []),
)
REALS = ("float", "double")
PREBUILT = HERE / "prebuilt"
KINDS: dict[str, tuple[str, set[str]]] = {
    "x86_64": ("x86-64-v3", {"avx2", "bmi2", "f16c", "fma", "movbe"}),
    "aarch64": ("armv8-a", set()),
}
"""The processors that libraries in a wheel are for: the kind to compile for, and what its processors must have."""
PATIENCE_S = 120
SAYS = "compiling the kernels in C for this processor, once"
_shown = threading.Lock()


@contextlib.contextmanager
def library(real: str) -> Iterator[Path]:
    """Yield the file for numbers of that type in C. Where no folder keeps it, it is there while this lasts."""
    with contextlib.ExitStack() as stack:
        try:
            file = stack.enter_context(_of_this_processor(real))
        except (OSError, subprocess.SubprocessError, RuntimeError):
            found = prebuilt(real)
            if found is None:
                raise
            file = found
        yield file


@contextlib.contextmanager
def _of_this_processor(real: str) -> Iterator[Path]:
    command = [*_compiler(), *FLAGS, f"-DREAL={real}"]
    name = f"{_key(command)}.so"
    with _folder() as folder:
        if not (folder / name).exists():
            with _alone(folder):
                if not (folder / name).exists():
                    _compile(command, folder / name)
        yield folder / name


def _key(command: list[str]) -> str:
    """Return a hash of all that a library is made of."""
    parts = [*(path.read_text("utf-8") for path in FILES.values()), *command]
    parts.append(_run([*command, "-dM", "-E", "-x", "c", os.devnull]))  # every macro: its version and its target
    return hashlib.sha256(chr(0).join(parts).encode()).hexdigest()[:24]


def prebuilt(real: str) -> Path | None:
    """Return the library that the wheel brought for this kind of processor, if there is one."""
    _, needed = KINDS.get(platform.machine(), ("", set()))
    with contextlib.suppress(OSError):
        has = set(Path("/proc/cpuinfo").read_text("utf-8").split())
        return next(iter(PREBUILT.glob(f"{platform.machine()}-{real}-*.so")), None) if needed <= has else None
    return None


def prebuild(folder: Path) -> None:
    """Compile both libraries for any processor of this machine's kind."""
    kind, _ = KINDS[platform.machine()]
    folder.mkdir(parents=True, exist_ok=True)
    for real in REALS:
        command = [*_compiler(), *(f"-march={kind}" if flag == "-march=native" else flag for flag in FLAGS)]
        command.append(f"-DREAL={real}")
        _compile(
            command,
            folder / f"{platform.machine()}-{real}-{_key(command)}.so",
            f"compiling the kernels in C for {kind}",
        )


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """While no other process compiles there, unless one takes too long or the folder knows no locks."""
    held = os.open(folder, os.O_RDONLY)
    try:
        for _ in range(10 * PATIENCE_S):
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                time.sleep(0.1)
            except OSError:
                break
            else:
                break
        yield
    finally:
        os.close(held)


def _compile(command: list[str], library: Path, says: str = SAYS) -> None:
    with tempfile.TemporaryDirectory(dir=library.parent) as room, _progress(says) as done_one:
        made = Path(room) / library.name

        def compiled(name: str) -> str:
            file = _compiled(command, name, Path(room))
            done_one()
            return file

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            objects = list(pool.map(compiled, SOURCES))
        _run([*command, *objects, "-lm", "-o", str(made)])
        made.replace(library)  # whole at once, whoever else is compiling it


@contextlib.contextmanager
def _progress(says: str) -> Iterator[Callable[[], None]]:
    """Say on stderr that kernels are compiled, with a bar on a terminal. Yield what to call after each source."""
    stream = getattr(sys.stderr, "behind", sys.stderr)  # the terminal itself, where a command escapes what it prints
    count, width = len(SOURCES), 20
    is_terminal = bool(stream) and stream.isatty()
    done = 0

    def show() -> None:
        full = width * done // count
        stream.write(f"\r{says}: [{'#' * full}{'-' * (width - full)}] {done}/{count}" if is_terminal else f"{says}\n")
        stream.flush()

    def done_one() -> None:
        nonlocal done
        with _shown:
            done += 1
            if is_terminal:
                show()

    if stream:
        show()
    yield done_one
    if is_terminal:
        stream.write("\n")


def _compiled(command: list[str], name: str, room: Path) -> str:
    made = str(room / f"{name}.o")
    _run([*command, f"-iquote{HERE}", "-c", str(FILES[name]), "-o", made])  # no path is hashed
    return made


def _compiler() -> list[str]:
    asked = shlex.split(os.environ.get("CC", ""))
    found = next((path for name in ("cc", "gcc", "clang") if (path := shutil.which(name))), None)
    if asked:
        return asked
    if found is None:
        raise RuntimeError("no C compiler on the PATH")
    return [found]


def _run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    if done.returncode:
        raise RuntimeError(f"{command[0]} failed: {(done.stderr.strip() or f'exit {done.returncode}').splitlines()[0]}")
    return done.stdout


def cache_folder() -> Path | None:
    """Return the user's folder for what this project keeps between runs. None if the user has no home."""
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "chomsky-ladder"
    except RuntimeError:
        return None


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    """Yield the folder that keeps compiled kernels: the user's cache, or a temporary one if that is not writable."""
    folder, keeps = cache_folder(), False
    with contextlib.suppress(OSError):
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            keeps = os.access(folder, os.W_OK | os.X_OK)
    if folder is not None and keeps:
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="chomsky-ladder-") as room:
        yield Path(room)


if __name__ == "__main__":
    if sys.argv[1:]:
        prebuild(Path(sys.argv[1]))
        sys.exit()
    for each in REALS:
        with library(each):
            pass
