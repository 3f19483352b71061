"""Typing commands, as the tests of the command line do."""

from tests.cli.conftest import type_in

__all__ = ["type_in"]
