"""Pretend that another C compiler is installed, or none."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from fedwatt.engine.kernels import c_compiler as native


@contextmanager
def compiling_with(compiler: str) -> Iterator[None]:
    """With `compiler` as CC, and nothing compiled before."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CC", compiler)
        native._compiled.cache_clear()
        try:
            yield
        finally:
            native._compiled.cache_clear()
