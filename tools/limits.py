"""Hold the library to its limits of size and language: `python tools/limits.py [FOLDER]`.

Ruff holds the complexity of functions (C901); this script holds what ruff has no rule for. Each
finding is one line, `file:line: what measures how much, limit`, and any finding makes the script
end with status 1. Size is counted in tokens (names, operators, numbers and strings; no comments,
no docstrings), so that packing several statements into one line gains nothing.
"""

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

VAGUE: Final = set(
    [
        "own",
        "one",
        "found",
        "told",
        "said",
        "about",
        "spoken",
        "whole",
        "parts_of",
        "thing",
        "them",
        "those",
        "wanted",
        "there",
        "others",
        "given",
        "behind",
        "rest",
        "known",
        "kept",
        "shown",
        "asked",
    ]
)
"""Identifiers that say nothing, as names of variables, arguments, functions or classes."""
OPENER: Final = re.compile(
    r"^(What|Who|Whose|Whom|How|Why|Where|Which|Those|As|Whether|Whoever|All that|The same)\b"
)
"""First words of docstrings that are neither a command nor a noun phrase."""


BESIDE: Final = {
    "benchmarks": {"files": 44, "tokens": 64_600, "vague_names": 0, "openers": 0, "packed": 0},
    "comparison": {"vague_names": 0, "openers": 0},
    "reproduction": {"files": 30, "tokens": 44_500, "vague_names": 0, "openers": 0},
    "tests": {"vague_names": 60, "openers": 0, "packed": 0},
}
"""Folders beside the library, and the upper limits of their size and language."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Upper limits: lines of a function and of a file, and counts over the whole library.

    A function's lines run from its `def` to its end, docstring included and decorators not.
    """

    function: int = 60
    file: int = 500
    files: int = 300
    tokens: int = 350_000
    vague_names: int = 11
    openers: int = 0
    packed: int = 0
    skips: int = 6


def findings(library: Path, limits: Limits) -> Iterator[str]:
    """Yield what is over the limits in the Python files below `library`, in order of path."""
    first_seen: dict[str, str] = {}
    paths = sorted(library.rglob("*.py"))
    totals = dict.fromkeys(("tokens", "vague_names", "openers", "packed", "skips", "files"), 0)
    for path in paths:
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text, str(path))
        lines = len(text.splitlines())
        if lines > limits.file:
            yield f"{path}:1: file has {lines} lines, limit {limits.file}"
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield from _long_function(path, node, limits.function)
            elif isinstance(node, ast.ClassDef):
                where = f"{path}:{node.lineno}"
                first = first_seen.setdefault(node.name, where)
                if first != where:
                    yield f"{where}: class {node.name} is there twice, limit 1: also {first}"
        for measure, count in counts(text, tree).items():
            totals[measure] += count
    for measure, total in totals.items():
        limit = getattr(limits, measure)
        if total > limit:
            name = measure.replace("_", " ")
            yield f"{library}:1: library has {total:,} {name}, limit {limit:,}"


def findings_beside(root: Path) -> Iterator[str]:
    """Yield what is over the limits of size and language in the folders beside the library."""
    for folder, limits in BESIDE.items():
        totals = dict.fromkeys(limits, 0)
        for path in (root / folder).rglob("*.py"):
            text = path.read_text(encoding="utf-8")
            measured = counts(text, ast.parse(text, str(path)))
            totals = {measure: totals[measure] + measured[measure] for measure in limits}
        for measure, total in totals.items():
            if total > limits[measure]:
                name = measure.replace("_", " ")
                yield f"{folder}:1: {total:,} {name}, limit {limits[measure]:,}"


def counts(text: str, tree: ast.Module) -> dict[str, int]:
    """Return the counts of one file that add up to those of the library."""
    return {
        "files": 1,
        "tokens": sum(1 for _ in _tokens(text, tree)),
        "vague_names": sum(name in VAGUE for name in bound_names(tree)),
        "openers": sum(bool(OPENER.match(summary)) for summary in _summaries(tree)),
        "packed": sum(is_packed(node) for node in ast.walk(tree)),
        "skips": text.count("fmt: skip") + text.count("fmt: off"),
    }


def bound_names(tree: ast.Module) -> Iterator[str]:
    """Yield the names that a file binds: variables, arguments, functions and classes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name.lstrip("_").lower()


def is_packed(node: ast.AST) -> bool:
    """Return whether a statement assigns unrelated values in one line: `a, b = x, y`.

    A swap or a simultaneous update, which reads a name that it binds, is not packed.
    """
    if not isinstance(node, ast.Assign):
        return False
    target = node.targets[0]
    if not (isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple)):
        return False
    bound = {name.id for name in ast.walk(target) if isinstance(name, ast.Name)}
    read = {name.id for name in ast.walk(node.value) if isinstance(name, ast.Name)}
    return len(node.value.elts) > 1 and not bound & read


def _tokens(text: str, tree: ast.Module) -> Iterator[tokenize.TokenInfo]:
    docstring_lines = {statement.lineno for statement in _docstrings(tree)}
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        in_code = token.type != tokenize.STRING or token.start[0] not in docstring_lines
        counted = (tokenize.NAME, tokenize.OP, tokenize.NUMBER, tokenize.STRING)
        if token.type in counted and in_code:
            yield token


def _docstrings(tree: ast.Module) -> Iterator[ast.Expr]:
    """Yield docstrings, and the strings that stand behind attributes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            for statement in node.body:
                if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
                    yield statement


def _summaries(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield ast.get_docstring(node) or ""


def _long_function(
    path: Path, node: ast.FunctionDef | ast.AsyncFunctionDef, limit: int
) -> Iterator[str]:
    lines = (node.end_lineno or node.lineno) - node.lineno + 1
    if lines > limit:
        yield f"{path}:{node.lineno}: function {node.name} has {lines} lines, limit {limit}"


def main() -> int:
    """Print what is over the limits in the given folder, or in the library; return the status."""
    library = Path(sys.argv[1] if len(sys.argv) > 1 else "fedwatt")
    problems = list(findings(library, Limits()))
    if len(sys.argv) == 1:
        problems += findings_beside(Path())
    print("\n".join(problems) or f"{library}: within all limits")
    if problems:
        advice = "A limit rises only for a feature: `Limits` here, its reason in CHANGELOG.md."
        print(advice, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
