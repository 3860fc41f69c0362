# Sourced by the entry points: sets ROOT and PYTHON, and makes the environment in .venv unless it is there and current.
ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
PYTHON="$ROOT/.venv/bin/python"
STAMP="$ROOT/.venv/installed-for"

wanted() { cksum < "$ROOT/pyproject.toml"; echo "$ROOT"; }

if [ ! -x "$PYTHON" ] || [ "$(wanted)" != "$(cat "$STAMP" 2>/dev/null)" ]; then
  BASE=""
  for candidate in ${LADDER_PYTHON:-} python3.13 python3.12 python3.11 python3 python; do
    if "$candidate" -c 'import sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      BASE="$candidate"
      break
    fi
  done
  if [ -z "$BASE" ]; then
    echo "Python 3.11 or newer with its venv module is needed, and none was found on the PATH" >&2
    exit 2
  fi
  echo "Making the environment in $ROOT/.venv (once; some minutes, mostly torch)" >&2
  # A core is idle while packages come; what asks for the kernels in C before they are compiled waits for these.
  nice "$BASE" "$ROOT/models/kernels/native_library.py" < /dev/null > /dev/null 2>&1 &
  "$BASE" -m venv --clear "$ROOT/.venv"  # afresh: what an interrupted installation left may lack anything
  "$PYTHON" -m pip install --quiet --disable-pip-version-check --no-compile --editable "$ROOT[test,oracles,ray,reports,hub,docs]"
  UNUSED='/tests?/|/transformers/models/|/ray/(rllib|data|serve|train|tune|llm|dashboard|autoscaler)/'
  UNUSED+='|/site-packages/(pip|fontTools|torch/testing|sympy/physics)/|/pygments/lexers/'
  # Compiled by all cores, where pip takes one, and without what nothing here imports: in a third of the time.
  "$PYTHON" -W ignore -m compileall -q -j 0 -x "$UNUSED" \
    "$ROOT"/.venv/lib/python*/site-packages > /dev/null 2>&1 || true  # some files are for other Pythons
  wanted > "$STAMP"
fi
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"  # one thread a process: two beside a busy neighbour ran 3-16x slower
