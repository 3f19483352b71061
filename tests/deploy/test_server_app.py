"""What Flower starts for a run."""

import logging
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("flwr")

from fedwatt.deploy import server_app
from fedwatt.errors import RunError


def test_a_run_that_cannot_be_is_told_in_a_sentence_and_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def execute(*arguments: object, **options: object) -> None:
        raise RunError("1 of 2 vehicles enrolled within 4 s.")

    flower = logging.getLogger("flwr")
    before = flower.level
    monkeypatch.setattr(server_app, "execute", execute)
    monkeypatch.setattr(server_app, "show_log", lambda: None)
    settings = {"out": str(tmp_path), "config": "seeds = [1]", "resume": False}
    # Flower sees the run fail, and has nothing to add to what is said.
    with pytest.raises(RunError):
        server_app.main(SimpleNamespace(), SimpleNamespace(run_config=settings))
    quiet = not flower.isEnabledFor(logging.ERROR)
    flower.setLevel(before)
    assert quiet
    assert "Error: 1 of 2 vehicles enrolled" in caplog.text
