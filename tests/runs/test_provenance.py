"""With what numbers were made."""

import torch

from fedwatt.engine.version import VERSION
from fedwatt.runs import provenance as module
from fedwatt.runs.provenance import provenance

CPU = torch.device("cpu")


def test_code_libraries_and_machine_are_told(monkeypatch) -> None:
    monkeypatch.setenv(module.COMMIT, "0123abc")
    module.commit.cache_clear()
    origin = provenance(CPU)
    module.commit.cache_clear()
    assert origin["commit"] == "0123abc"
    assert origin["versions"]["torch"] == torch.__version__
    assert origin["engine"] == VERSION
    assert origin["device"] == "cpu" and origin["driver"] == "none"
    assert origin["threads"] == torch.get_num_threads()
    assert origin["deterministic"]


def test_without_a_repository_the_commit_is_unknown(monkeypatch, tmp_path) -> None:
    monkeypatch.delenv(module.COMMIT, raising=False)
    monkeypatch.setattr(module, "PACKAGE", tmp_path / "fedwatt")
    module.commit.cache_clear()
    assert module.commit() == "unknown"
    module.commit.cache_clear()
