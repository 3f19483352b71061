"""C that is compiled when it is first needed, where a compiler is installed.

CC names the compiler, "cc" if unset. A source takes it a fraction of a second, once in a process.
Everything in C exists in torch as well, for machines without a compiler. If a compiler refuses the
C, a warning quotes the compiler once.
"""

import ctypes
import os
import shlex
import subprocess
import warnings
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from shutil import which
from tempfile import TemporaryDirectory
from threading import Lock

FLAGS = (
    "-O3",
    "-march=native",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fopenmp-simd",
    "-shared",
    "-fPIC",
)
WIDE = "-mprefer-vector-width=512"
"""Twice as fast where it is known; other processors' compilers refuse it."""

_one_at_a_time = Lock()


class SlowerInTorch(UserWarning):
    """Something correct runs in torch because it has no fast path here."""


def compiled(source: str) -> ctypes.CDLL | None:
    """Return the functions of `source`; None where they cannot be compiled."""
    # Threads that need the same source at once wait for the first instead of compiling it, too.
    with _one_at_a_time:
        return _compiled(source)


@cache
def _compiled(source: str) -> ctypes.CDLL | None:
    compiler, *options = shlex.split(os.environ.get("CC", "cc")) or [""]
    if which(compiler) is None:
        return None
    try:
        return _loaded(source, [compiler, *options])
    except OSError:  # a temporary folder that cannot be written to, or that nothing may run from
        return None


def _loaded(source: str, compiler: Sequence[str]) -> ctypes.CDLL | None:
    with TemporaryDirectory(prefix="fedwatt-") as folder:
        code = Path(folder, "source.c")
        library = Path(folder, "library.so")
        code.write_text(source, encoding="utf-8")
        for flags in ((*FLAGS, WIDE), FLAGS):
            command = [*compiler, *flags, str(code), "-o", str(library), "-lm"]
            done = subprocess.run(command, capture_output=True, check=False, text=True)
            if done.returncode == 0:
                break
        else:
            warnings.warn(
                f"A kernel is left to torch, which is slower. {compiler[0]} says: "
                f"{done.stderr.strip() or f'exit status {done.returncode}'}",
                SlowerInTorch,
                stacklevel=4,
            )
            return None
        return ctypes.CDLL(str(library))  # stays loaded when the file is gone
