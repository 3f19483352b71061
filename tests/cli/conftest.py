"""Typing commands in an empty folder, in this process."""

import sys
from pathlib import Path

import pytest

from fedwatt.cli import main


@pytest.fixture
def type_in(tmp_path: Path, monkeypatch, capfd):
    """Types a command in an empty folder: (status, what it printed)."""

    def run(*arguments: str) -> tuple[int, str]:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", ["fedwatt", *arguments])
        with pytest.raises(SystemExit) as stopped:
            main()
        printed = capfd.readouterr()
        return int(stopped.value.code or 0), " ".join((printed.out + printed.err).split())

    return run
