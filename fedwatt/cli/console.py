"""The two streams that commands write to."""

from rich.console import Console

console = Console()
errors = Console(stderr=True)
