"""Sums that a server keeps: read back as they were, by this version and by the one before."""

from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

from fedwatt.deploy.kept_sums import KEPT, SecretSum, keep_sum, recall_sum

PART = bytes(range(32)) + (2).to_bytes(4, "little")
FOUND = SecretSum(
    {"delta": np.array([0.5, -2.0]), "weight": np.array([3.0])}, ("Čar 1", "b"), b"terms", (PART,)
)


def test_a_sum_is_read_back_by_its_purpose_alone(tmp_path: Path) -> None:
    keep_sum(tmp_path, "round 1", FOUND)
    found = recall_sum(tmp_path, "round 1")
    assert found is not None and recall_sum(tmp_path, "round 2") is None
    assert {name: own.tolist() for name, own in found.sums.items()} == {
        "delta": [0.5, -2.0],
        "weight": [3.0],
    }
    assert (found.survivors, found.exchange, found.parts) == (("Čar 1", "b"), b"terms", (PART,))


def test_its_file_is_laid_out_as_the_version_before_reads_it(tmp_path: Path) -> None:
    keep_sum(tmp_path, "round 1", FOUND)
    (file,) = (tmp_path / "sums").iterdir()
    kept = load_file(file)
    assert kept.keys() == {"survivors", "exchange", "parts", "sum.delta", "sum.weight"}
    assert kept["survivors"].tobytes() == b'["\\u010car 1", "b"]'
    assert kept["exchange"].tobytes() == b"terms" and kept["parts"].shape == (1, 36)


def test_a_damaged_file_is_no_sum(tmp_path: Path) -> None:
    keep_sum(tmp_path, "round 1", FOUND)
    (file,) = (tmp_path / "sums").iterdir()
    file.write_bytes(file.read_bytes()[:-9])
    assert recall_sum(tmp_path, "round 1") is None


def test_the_oldest_are_let_go(tmp_path: Path) -> None:
    for number in range(KEPT + 2):
        keep_sum(tmp_path, f"round {number}", FOUND)
    assert len(list((tmp_path / "sums").iterdir())) == KEPT
