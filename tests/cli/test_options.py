"""Options that commands share."""

from datetime import datetime
from pathlib import Path

import pytest

from fedwatt.cli.options import folder_for


class Noon(datetime):
    """A clock that stands still."""

    @classmethod
    def now(cls, tz: object = None) -> "Noon":
        return cls(2024, 3, 9, 12)


def test_two_runs_of_one_second_get_two_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(folder_for.__globals__, "datetime", Noon)
    for name in ("2024-03-09-120000", "2024-03-09-120000-2", "2024-03-09-120000-3"):
        folder = folder_for(None, resume=False)
        assert folder == Path("runs", name)
        folder.mkdir(parents=True)
