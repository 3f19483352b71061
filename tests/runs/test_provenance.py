"""With what numbers were made."""

import torch

from fedwatt.engine.version import VERSION
from fedwatt.runs import provenance as module
from fedwatt.runs.provenance import provenance, same_kind

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


def test_what_numbers_may_depend_on() -> None:
    origin = provenance(CPU)
    assert same_kind(origin, origin | {"threads": 64, "commit": "another"}) == []
    assert same_kind(origin, origin | {"engine": 0}) == ["engine"]
    assert same_kind(origin, origin | {"processor": "another"}) == ["processor"]
    newer = origin["versions"] | {"torch": "3.0"}
    assert same_kind(origin, origin | {"versions": newer}) == ["torch"]
    everything = ["engine", "device", "processor", "compiler", "torch", "numpy", "deterministic"]
    assert same_kind(origin, {}) == everything
    gpu = origin | {"device": "NVIDIA H200", "driver": "570.1", "deterministic": True}
    assert same_kind(gpu, gpu | {"processor": "another"}) == []
    assert same_kind(gpu, gpu | {"driver": "580.1"}) == ["driver"]
    assert same_kind(gpu, gpu | {"deterministic": False}) == ["deterministic"]
