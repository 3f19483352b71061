"""Scalars and files for trackers."""

from pathlib import Path

from fedwatt.runs.trackers import all_scalars, artefacts


def test_means_are_over_the_seeds_that_have_a_number() -> None:
    rows = [
        {"seed": 1, "test_rmse": 40.0, "learning_rate": 0.1},
        {"seed": 2, "test_rmse": float("nan")},
    ]
    means = {"test_rmse": 40.0, "learning_rate": 0.1}
    seed_scalars = {"seed-1/test_rmse": 40.0, "seed-1/learning_rate": 0.1}
    assert all_scalars(rows) == means | seed_scalars


def test_only_files_that_are_there_are_handed_on(tmp_path: Path) -> None:
    (tmp_path / "figures").mkdir()
    for name in ("config.toml", "figures/error.svg", "figures/error.pdf"):
        (tmp_path / name).touch()
    result = [str(file.relative_to(tmp_path)) for file in artefacts(tmp_path)]
    assert result == ["config.toml", "figures/error.svg"]
