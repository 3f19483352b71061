"""Work spread over cores: who does it, and what becomes of failures and forks."""

import os
import threading
import warnings

import pytest
import torch

from fedwatt.threads import run_on_cores, threads


def test_every_piece_has_a_core_of_its_own() -> None:
    both_there = threading.Barrier(2, timeout=20)

    def work(piece: str) -> tuple[str, str, int]:
        both_there.wait()
        return piece, threading.current_thread().name, torch.get_num_threads()

    with threads(2):
        done = run_on_cores(work, ["a", "b"])
        assert torch.get_num_threads() == 2
    assert [piece for piece, _, _ in done] == ["a", "b"]
    assert len({name for _, name, _ in done}) == 2
    assert [count for _, _, count in done] == [1, 1]


def test_large_pieces_share_the_cores_that_are_left() -> None:
    with threads(5):
        assert run_on_cores(lambda _: torch.get_num_threads(), [1, 2], large=True) == [2, 2]
        assert run_on_cores(lambda _: torch.get_num_threads(), [1], large=True) == [5]
        assert run_on_cores(lambda _: torch.get_num_threads(), [1]) == [1]
        assert run_on_cores(lambda _: torch.get_num_threads(), []) == []


@pytest.mark.parametrize("count", [1, 2])
def test_a_failure_in_a_thread_reaches_the_caller(count: int) -> None:
    def work(piece: int) -> None:
        raise ValueError(f"piece {piece}")

    with threads(count), pytest.raises(ValueError, match="piece 0"):
        run_on_cores(work, [0, 1])
    assert torch.get_num_threads() >= 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_a_forked_process_gets_threads_of_its_own() -> None:
    with threads(2):
        run_on_cores(lambda piece: piece, [0, 1])
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        # Python 3.12 warns of what this test is about.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        # The parent's threads do not live on here: work given to them would never be done.
        with threads(2):
            os.write(writer, bytes(run_on_cores(lambda piece: piece, [3, 4])))
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reader, 2) == b"\x03\x04"
