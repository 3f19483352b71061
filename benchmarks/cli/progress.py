"""How far a benchmark is."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn


@contextmanager
def progress_bar(console: Console, what: str) -> Iterator[Callable[[int, int], None]]:
    """A function of (done, all) that moves a bar in a terminal; a line each quarter elsewhere."""
    if console.is_terminal:
        columns = (TextColumn("{task.description}", style="bold", markup=False), BarColumn())
        with Progress(*columns, TimeRemainingColumn(), console=console, transient=True) as bar:
            task = bar.add_task(what, total=None)
            yield lambda done, of: bar.update(task, completed=done, total=of)
        return
    shown = 0

    def line(done: int, of: int) -> None:
        nonlocal shown
        quarter = 4 * done // of
        if quarter > shown:
            shown = quarter
            console.print(f"{what}: {25 * quarter} %", highlight=False)

    yield line
