"""Where the examples are, which tests use as anybody would."""

from pathlib import Path

EXAMPLES = Path(__file__).parent.parent / "examples"
