"""Paths of the examples, which tests use as anybody would."""

from pathlib import Path

EXAMPLES = Path(__file__).parent.parent / "examples"
