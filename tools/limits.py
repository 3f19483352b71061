"""Hold the library to its limits of size: `python tools/limits.py [FOLDER]`.

Ruff holds the complexity of functions (C901); this script holds what ruff has no rule for. Each
finding is one line, `file:line: what measures how much, limit`, and any finding makes the script
end with status 1.
"""

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The most lines of code that a function, a file and all files together may have.

    A function's lines run from its `def` to its end, docstring included and decorators not.
    """

    function: int = 60
    file: int = 400
    library: int = 66_500


def findings(library: Path, limits: Limits) -> Iterator[str]:
    """What is over the limits in the Python files below `library`, in the order of their paths."""
    total = 0
    first_seen: dict[tuple[str, str], str] = {}
    for path in sorted(library.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        lines = len(text.splitlines())
        total += lines
        if lines > limits.file:
            yield f"{path}:1: file has {lines} lines, limit {limits.file}"
        for node in ast.walk(ast.parse(text, str(path))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield from _long_function(path, node, limits.function)
            elif isinstance(node, ast.ClassDef):
                where = f"{path}:{node.lineno}"
                first = first_seen.setdefault((layer(path, library), node.name), where)
                if first != where:
                    yield f"{where}: class {node.name} is there twice, limit 1: also {first}"
    if total > limits.library:
        yield f"{library}:1: library has {total:,} lines, limit {limits.library:,}"


def layer(path: Path, library: Path) -> str:
    """The package directly below `library` that holds a file; "" for a file in `library` itself."""
    inside = path.relative_to(library).parts
    return inside[0] if len(inside) > 1 else ""


def _long_function(
    path: Path, node: ast.FunctionDef | ast.AsyncFunctionDef, limit: int
) -> Iterator[str]:
    lines = (node.end_lineno or node.lineno) - node.lineno + 1
    if lines > limit:
        yield f"{path}:{node.lineno}: function {node.name} has {lines} lines, limit {limit}"


def main() -> int:
    """Print what is over the limits in the folder named, or in the library."""
    library = Path(sys.argv[1] if len(sys.argv) > 1 else "fedwatt")
    found = list(findings(library, Limits()))
    print("\n".join(found) or f"{library}: within all limits")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
