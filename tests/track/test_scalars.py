"""What is handed to trackers."""

from pathlib import Path

from fedwatt.track.scalars import artefacts, mean_scalars


def test_means_are_over_the_seeds_that_have_a_number() -> None:
    rows = [{"seed": 1, "test_rmse": 40.0, "rate": 0.1}, {"seed": 2, "test_rmse": float("nan")}]
    assert mean_scalars(rows) == {"test_rmse": 40.0, "rate": 0.1}


def test_only_files_that_are_there_are_handed_on(tmp_path: Path) -> None:
    (tmp_path / "figures").mkdir()
    for name in ("config.toml", "figures/error.svg", "figures/error.pdf"):
        (tmp_path / name).touch()
    found = [str(file.relative_to(tmp_path)) for file in artefacts(tmp_path)]
    assert found == ["config.toml", "figures/error.svg"]
