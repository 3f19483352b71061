import os
from pathlib import Path

import numpy as np
import pytest

from fedwatt.elevation.elevation_map import empty_map
from fedwatt.elevation.grid import Grid
from fedwatt.elevation.learn import learn
from fedwatt.elevation.settings import ElevationSettings
from fedwatt.elevation.store import read_map_file, write_map_file
from fedwatt.errors import DataError, SettingError
from fedwatt.report.figures.elevation import write_map
from fedwatt.windows import DataSettings
from tests.elevation.toys import fleet


@pytest.fixture(scope="module")
def field():
    settings = ElevationSettings(minimum_vehicles=1, private=False, cell_m=60.0)
    return learn(fleet(3), settings, DataSettings(features="speed")).shared


def test_a_field_comes_back_as_it_was_written(field, tmp_path):
    write_map_file(tmp_path / "a" / "hills.parquet", field)
    back = read_map_file(tmp_path / "a" / "hills.parquet")
    assert back.grid == field.grid
    for name in ("keys", "elevation_m", "region", "passes", "vehicles"):
        assert (getattr(back, name) == getattr(field, name)).all()


def test_a_field_is_on_the_disk_before_it_has_its_name(field, tmp_path, monkeypatch):
    done = []
    rename = Path.replace
    monkeypatch.setattr(os, "fsync", lambda descriptor: done.append("flushed"))

    def named(path, target):
        done.append("named")
        return rename(path, target)

    monkeypatch.setattr(Path, "replace", named)
    write_map_file(tmp_path / "hills.parquet", field)
    assert done == ["flushed", "named", "flushed"]  # the file, then its folder
    assert [file.name for file in tmp_path.iterdir()] == ["hills.parquet"]


def test_a_field_that_cannot_be_written_says_so(field, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match=r"Could not write .*: .+\. Choose another file"):
        write_map_file(tmp_path / "file" / "hills.parquet", field)


def test_what_is_no_field_is_refused(tmp_path):
    (tmp_path / "text.parquet").write_text("hello")
    with pytest.raises(DataError, match="not an elevation map that can be read"):
        read_map_file(tmp_path / "text.parquet")


@pytest.mark.parametrize("kind", ["png", "pdf", "svg"])
def test_a_map_is_drawn(field, tmp_path, kind):
    out = tmp_path / f"map.{kind}"
    write_map(field, out)
    head = {"png": b"\x89PNG", "pdf": b"%PDF", "svg": b"<?xml"}[kind]
    assert out.read_bytes().startswith(head)


def test_maps_of_nothing_and_of_unknown_kinds_are_refused(field, tmp_path):
    with pytest.raises(DataError, match="too few to draw"):
        write_map(empty_map(Grid()), tmp_path / "map.png")
    with pytest.raises(SettingError, match=r"ends in \.png"):
        write_map(field, tmp_path / "map.gif")


def test_an_unknown_place_reads_as_nothing(field):
    elevation, _ = field.read(np.array([10.0]), np.array([10.0]))
    assert np.isnan(elevation).all()
