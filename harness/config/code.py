"""A digest of the code behind a plugin's class: its own file, and the imported files that have no release of their own.

    rm.py, which imports layers.py beside it     rm.py and layers.py
    lab/models/mine.py with `from .. import nn`  mine.py and lab/nn.py, and lab/__init__.py if it does more than import
    a module of $PYTHONPATH or of an editable    hashed wherever it lies, with its own imports
    installation
    torch, numpy, this package                   not hashed: they have versions

Comments, docstrings and layout are left out. So an edit changes the digest only if it can change a number, and a new
file beside a model changes nothing. A module that is imported by a computed name is not seen.
"""

import ast
import hashlib
import site
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

OURS = "chomsky_ladder"
_LOADERS = ("import_module", "__import__")


def digest(files: Mapping[str, Path]) -> str:
    """Return the digest of these files' code, each with the name it is imported by."""
    made = hashlib.sha256()
    for name, path in sorted(files.items()):
        code = _code(path).encode()
        made.update(f"{name}\0{len(code)}\0".encode() + code)
    return made.hexdigest()[:12]


def files_of(file: Path, package: Path | None = None) -> dict[str, Path]:
    """Return a file under the name "", and all files it imports, directly or indirectly, under their module names.

    `package` is the folder of the top-level package that the file is in, if it is in one.
    """
    home = file.parent if package is None else package.parent
    found, left = {"": file}, [file]
    words = set() if package is None else {".".join(file.relative_to(home).with_suffix("").parts)}
    # A module's own name stands for the packages around it; a file alone may bear the name of another module.
    while left:
        words |= _imports(left.pop(), home)
        for name, path in (module for word in sorted(words) for module in _modules(word, home)):
            if name not in found and path != file:
                found[name] = path
                left.append(path)
        words = set()
    return found


def _modules(word: str, home: Path) -> Iterator[tuple[str, Path]]:
    """Yield the modules behind an imported name: `a.b.c` is a module, or the name `c` in the module `a.b`."""
    folder, parts = _folder(word.partition(".")[0], home), word.split(".")
    if folder is None:
        return
    for count in range(1, len(parts) + 1):
        path = folder.joinpath(*parts[:count])
        inner = path.joinpath(*parts[count : count + 1])
        passed = count < len(parts) and (inner.is_dir() or inner.with_name(f"{inner.name}.py").is_file())
        file = path / "__init__.py" if path.is_dir() else path.with_name(f"{path.name}.py")
        if file.is_file() and not (passed and _only_imports(file)):
            yield ".".join(parts[:count]), file


def _folder(top: str, home: Path) -> Path | None:
    """Return the folder that a top-level module is imported from; None for ours, Python's and what is installed."""
    if not top or top == OURS or top in sys.stdlib_module_names:
        return None
    spec = next(filter(None, (finder.find_spec(top, None) for finder in sys.meta_path)), None)
    places = [] if spec is None else list(spec.submodule_search_locations or [spec.origin or ""])
    if not places:
        beside = (home / top).is_dir() or (home / f"{top}.py").is_file()
        return home if beside else None
    folder = Path(places[0]).resolve().parent
    return None if _is_installed(folder) else folder


@cache
def _is_installed(folder: Path) -> bool:
    """Return True for a folder whose packages have a version, one that a cluster puts on $PYTHONPATH too."""
    named = [*site.getsitepackages(), site.getusersitepackages(), *map(sysconfig.get_path, ("purelib", "platlib"))]
    return any(folder.is_relative_to(Path(each).resolve()) for each in named) or any(folder.glob("*.dist-info"))


def _imports(file: Path, home: Path) -> set[str]:
    """Return the absolute names of all that a file imports."""
    inside = file.parent.relative_to(home).parts if file.is_relative_to(home) else ()
    names = set()
    for node in ast.walk(_tree(file)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = inside[: len(inside) - node.level + 1] if node.level else ()
            module = ".".join([*above, *([node.module] if node.module else [])])
            names |= {f"{module}.{alias.name}" for alias in node.names} if module else set()
        elif isinstance(node, ast.Call) and _name(node.func) in _LOADERS and node.args:
            names |= {str(word.value) for word in node.args[:1] if isinstance(word, ast.Constant)}
    return {name for name in names if not name.startswith(".")}


def version_in(file: Path, name: str) -> int | None:
    """Return the version with which a file registers a name; None if it has none."""
    for node in ast.walk(_tree(file)):
        if isinstance(node, ast.ClassDef):
            values: dict[str | None, ast.expr] = dict(pair for line in node.body for pair in _assigned(line))
            named = [values.get("name")]
        elif isinstance(node, ast.Call):
            values = {word.arg: word.value for word in node.keywords}
            named = [*node.args[:1], values.get("name")]
        else:
            continue
        names = [each.value for each in named if isinstance(each, ast.Constant)]
        version = getattr(values.get("version"), "value", None)  # a constant
        if name in names and isinstance(version, int):
            return version
    return None


def _assigned(statement: ast.stmt) -> Iterator[tuple[str | None, ast.expr]]:
    """Yield the names in an assignment with their values, also in `name, year = "rm", 2026`."""
    pairs = [(target, statement.value) for target in statement.targets] if isinstance(statement, ast.Assign) else []
    if isinstance(statement, ast.AnnAssign) and statement.value is not None:
        pairs = [(statement.target, statement.value)]
    for target, value in pairs:
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            yield from zip(map(_name, target.elts), value.elts, strict=False)
        else:
            yield _name(target), value


def _name(function: ast.expr) -> str:
    return getattr(function, "attr", getattr(function, "id", ""))


def _only_imports(file: Path) -> bool:
    """Return True if a package's `__init__.py` has nothing but imports, a docstring and `__all__`."""
    return all(
        isinstance(node, ast.Import | ast.ImportFrom)
        or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
        or (isinstance(node, ast.Assign) and [_name(target) for target in node.targets] == ["__all__"])
        for node in _tree(file).body
    )


def _tree(path: Path) -> ast.Module:
    stat = path.stat()
    return _parsed(path, stat.st_mtime_ns, stat.st_size)[0]


def _code(path: Path) -> str:
    stat = path.stat()
    return _parsed(path, stat.st_mtime_ns, stat.st_size)[1]


@cache
def _parsed(path: Path, changed: int, size: int) -> tuple[ast.Module, str]:
    """Return a file's syntax tree, and that tree as a text that is the same in every release of Python."""
    tree = ast.parse(path.read_bytes())
    return tree, _text(tree)


def _text(node: object) -> str:
    if isinstance(node, list):
        return f"[{' '.join(_text(each) for each in node if not _is_docstring(each))}]"
    if not isinstance(node, ast.AST):
        return repr(node)
    said = {name: value for name, value in ast.iter_fields(node) if value is not None and value != []}
    return f"{type(node).__name__}({' '.join(f'{name}={_text(value)}' for name, value in said.items())})"


def _is_docstring(node: object) -> bool:
    """Return True for a string that stands alone as a statement: a docstring of a module, class, function or field."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
