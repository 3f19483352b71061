"""C that is compiled when it is needed."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from fedwatt.engine.kernels import c_compiler as native
from tests.compilers import compiling_with


@pytest.mark.skipif(native.compiled("int seven(void) { return 7; }") is None, reason="no compiler")
def test_threads_that_want_the_same_share_one_compilation(monkeypatch: pytest.MonkeyPatch) -> None:
    source, load, loaded = "int eight(void) { return 8; }", native._loaded, list[str]()
    monkeypatch.setattr(native, "_loaded", lambda *given: loaded.append(given[0]) or load(*given))
    together = Barrier(3)

    def compiled(_: int) -> object:
        together.wait()
        return native.compiled(source)

    with ThreadPoolExecutor(3) as threads:
        first, *others = threads.map(compiled, range(3))
    assert loaded == [source]
    assert first is not None and all(other is first for other in others)
    assert first.eight() == 8


@pytest.mark.parametrize("compiler", ["no-such-compiler", "false", ""])
def test_without_a_compiler_there_is_nothing(compiler: str) -> None:
    with compiling_with(compiler):
        assert native.compiled("int nine(void) { return 9; }") is None


def test_what_is_no_c_is_not_compiled() -> None:
    assert native.compiled("this is no C") is None
