"""C that is compiled when it is needed."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from fedwatt.engine.kernels import c_compiler
from tests.engine.kernels.compilers import compiling_with


@pytest.mark.skipif(
    c_compiler.compiled("int seven(void) { return 7; }") is None, reason="no compiler"
)
def test_threads_that_want_the_same_share_one_compilation(monkeypatch: pytest.MonkeyPatch) -> None:
    source = "int eight(void) { return 8; }"
    load = c_compiler._loaded
    loaded = list[str]()
    monkeypatch.setattr(
        c_compiler, "_loaded", lambda *inputs: loaded.append(inputs[0]) or load(*inputs)
    )
    together = Barrier(3)

    def compiled(_: int) -> object:
        together.wait()
        return c_compiler.compiled(source)

    with ThreadPoolExecutor(3) as threads:
        first, *remaining = threads.map(compiled, range(3))
    assert loaded == [source]
    assert first is not None and all(other is first for other in remaining)
    assert first.eight() == 8


@pytest.mark.parametrize("compiler", ["no-such-compiler", ""])
def test_without_a_compiler_there_is_nothing(compiler: str) -> None:
    with compiling_with(compiler):
        assert c_compiler.compiled("int nine(void) { return 9; }") is None


def test_c_that_does_not_compile_is_told_once_with_the_compilers_words() -> None:
    source = "int ten(void) { return undeclared_thing; }"
    with pytest.warns(c_compiler.SlowerInTorch, match=r"(?s)says: .*undeclared_thing") as messages:
        assert c_compiler.compiled(source) is None
    assert len(messages) == 1
    assert c_compiler.compiled(source) is None  # a second warning would be an error here


def test_a_compiler_that_fails_without_a_word_is_told_by_its_status() -> None:
    with (
        compiling_with("false"),
        pytest.warns(c_compiler.SlowerInTorch, match="false says: exit status 1"),
    ):
        assert c_compiler.compiled("int eleven(void) { return 11; }") is None
