"""Version of the engine: a number that people raise, and a digest of the sources.

The version goes up when the same training would give other numbers, if only in their last bits, on
one machine with one torch. The digest changes with every change of the code that a training's
numbers pass through, harmless ones included: comments and docstrings alone are left out of it.
"""

import ast
from functools import cache
from hashlib import sha256
from pathlib import Path

VERSION = 1
"""Of the numbers. `tests/engine/test_version.py` holds those of this one."""
GPU_VERSION = 2
"""Of the numbers on a GPU: 2 since whole rounds of an MLP are one kernel."""

PACKAGE = Path(__file__).resolve().parents[1]
TRAINING = ("engine", "federation", "methods", "metrics", "models")
"""Packages between a fleet's windows and the errors of a trained model."""
ALONE = ("threads.py", "randomness.py")
COMPILED = (".c", ".cu", ".toml")


@cache
def sources_digest() -> str:
    """Return a digest of the sources that training depends on, 12 hexadecimal digits."""
    files = [PACKAGE / name for name in ALONE]
    files += [path for part in TRAINING for path in (PACKAGE / part).rglob("*")]
    digest = sha256()
    for path in sorted(files):
        if path.suffix == ".py":
            text = code_of(path.read_text(encoding="utf-8"))
        elif path.suffix in COMPILED:
            text = path.read_text(encoding="utf-8")
        else:
            continue
        digest.update(f"{path.relative_to(PACKAGE).as_posix()}\n{text}\n".encode())
    return digest.hexdigest()[:12]


def code_of(source: str) -> str:
    """Return Python code without comments, docstrings and layout.

    >>> code_of("x = 1  # one") == code_of("x = (1)") != code_of("x = 2")
    True
    """
    tree = ast.parse(source)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            # Strings behind attributes are docstrings, too.
            node.body = [  # type: ignore[attr-defined]
                part
                for part in body
                if not (isinstance(part, ast.Expr) and isinstance(part.value, ast.Constant))
            ]
    return ast.dump(tree)
