"""The two streams that commands write to."""

from rich.console import Console

# Without markup: a path or a label may hold brackets, and messages speak of [[method]] tables.
console = Console(markup=False)
errors = Console(stderr=True, markup=False)


def counted(count: int, noun: str) -> str:
    """A number and what it counts.

    >>> counted(1, "round"), counted(2000, "round")
    ('1 round', '2,000 rounds')
    """
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
