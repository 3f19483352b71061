"""The two streams that commands write to."""

from rich.console import Console

# Without markup: a path or a label may hold brackets, and messages speak of [[method]] tables.
console = Console(markup=False)
errors = Console(stderr=True, markup=False)
