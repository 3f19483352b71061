"""Pretend that another C compiler is installed, or none."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from fedwatt.engine.kernels import c_compiler


@contextmanager
def compiling_with(compiler: str) -> Iterator[None]:
    """With `compiler` as CC, and nothing compiled before."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CC", compiler)
        c_compiler._compiled.cache_clear()
        try:
            yield
        finally:
            c_compiler._compiled.cache_clear()
