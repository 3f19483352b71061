"""Work spread over a processor's cores, one piece to a core.

torch spreads each operation over all cores, which then wait for each other after every one; where
another program wants a core, too, the others spin. Pieces of work that know nothing of each other
need no waiting, so each gets a thread of its own, in which torch uses one core.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from typing import TypeVar

import torch

MOST_THREADS = 8
"""Python itself runs in one thread at a time; with more of them they would queue for it."""

Piece = TypeVar("Piece")
Result = TypeVar("Result")


def run_on_cores(
    work: Callable[[Piece], Result], pieces: Sequence[Piece], *, large: bool = False
) -> list[Result]:
    """Run `work` on each of `pieces`, on as many cores as torch may use.

    Where there are fewer pieces than cores, `large` ones get several cores each.
    """
    cores = torch.get_num_threads()
    count = min(cores, len(pieces), MOST_THREADS)
    each = max(1, cores // max(1, count)) if large else 1

    def limited(piece: Piece) -> Result:
        with threads(each):
            return work(piece)

    if count <= 1:
        return [limited(piece) for piece in pieces]
    return list(_executor(count, os.getpid()).map(limited, pieces))


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Let torch use `count` threads for what the present one does."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@cache
def _executor(count: int, process: int) -> ThreadPoolExecutor:
    """Return the thread pool of a `process`; threads do not survive a fork."""
    return ThreadPoolExecutor(count, thread_name_prefix="fedwatt")
