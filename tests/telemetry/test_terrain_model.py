"""Elevation and grade from tiles, GeoTIFFs and points, with heights worked out by hand."""

import sys

import numpy as np
import pytest

from fedwatt.errors import DataError
from fedwatt.telemetry import Trip, Vehicle
from fedwatt.telemetry.terrain_model import (
    Enrichment,
    Tile,
    read_hgt,
    read_terrain_model,
    road_grade,
    with_elevation,
)


def write_tile(path, heights):
    heights.astype(">i2").tofile(path)
    return path


def unlabelled(name: str, trips: tuple[Trip, ...]) -> Vehicle:
    return Vehicle(name, trips, labels="none")


@pytest.fixture
def slope(tmp_path):
    """N42W084: 1,000 m at its south edge, 2,200 m at its north edge, the same from west to east."""
    rows = np.linspace(2200, 1000, 1201)
    return write_tile(tmp_path / "N42W084.hgt", np.repeat(rows[:, None], 1201, axis=1))


def test_a_tile_lies_where_its_name_says(slope):
    tile = read_hgt(slope)
    latitude = np.array([42.0, 42.5, 43.0, 42.0004166666])
    # The last lies half-way between two posts of 1 m difference.
    expected = [1000, 1600, 2200, 1000.5]
    assert tile.elevation_m(latitude, np.full(4, -83.5)) == pytest.approx(expected, abs=1e-3)
    outside = tile.elevation_m(np.array([41.9, 43.1, 42.5]), np.array([-83.5, -83.5, -82.9]))
    assert np.isnan(outside).all()


def test_bilinear_between_four_posts():
    tile = Tile(np.array([[0.0, 10.0], [20.0, 40.0]]), 1.0, 0.0, 1.0, 1.0)
    assert tile.elevation_m(np.array([0.5, 0.75]), np.array([0.5, 1.0])) == pytest.approx(
        [17.5, 17.5]
    )


def test_a_void_leaves_its_weight_to_the_others(tmp_path):
    heights = np.full((1201, 1201), 100)
    heights[0, 0] = -32768
    heights[600:602, 600:602] = -32768
    tile = read_hgt(write_tile(tmp_path / "S01E010.hgt", heights))
    step = 1 / 1200
    assert tile.elevation_m(np.array([-step / 2]), np.array([10 + step / 2])) == pytest.approx(
        [100]
    )
    inside_void = tile.elevation_m(np.array([-600.5 * step]), np.array([10 + 600.5 * step]))
    assert np.isnan(inside_void).all()


@pytest.mark.parametrize(
    ("name", "posts", "message"),
    [
        ("tile.hgt", 1201, "named after its corner"),
        ("N42W084.hgt", 1200, "bytes; an SRTM tile has"),
    ],
)
def test_a_tile_that_is_none_is_refused(tmp_path, name, posts, message):
    with pytest.raises(DataError, match=message):
        read_hgt(write_tile(tmp_path / name, np.zeros((posts, posts))))


def test_a_climb_has_its_grade_and_a_descent_the_other_sign(slope):
    metres = np.arange(300) * 20.0
    north = 42.2 + metres / 111_195
    # 1,200 m over one degree of latitude (111,195 m): 1.08 %
    for direction, sign in ((1, 1), (-1, -1)):
        channels = {
            "speed_mps": np.full(300, 20.0),
            "latitude_deg": north[::direction],
            "longitude_deg": np.full(300, -83.7),
        }
        vehicle = unlabelled("car", (Trip("1", channels),))
        enriched = with_elevation(vehicle, read_terrain_model([slope.parent]))
        result = enriched.trips[0].channels
        # SRTM heights are whole metres, so a slope over 100 m is good to 1 %.
        assert result["grade"].mean() == pytest.approx(sign * 1200 / 111_195, rel=0.02)
        assert result["elevation_m"][0] == pytest.approx(
            1000 + 1200 * (channels["latitude_deg"][0] - 42), abs=1
        )
        assert enriched.facts["trips_with_elevation"] == 1


def test_a_trip_off_the_map_is_left_as_it_is(slope):
    channels = {
        "speed_mps": np.ones(5),
        "latitude_deg": np.full(5, 10.0),
        "longitude_deg": np.full(5, 10.0),
    }
    trips = (Trip("1", channels), Trip("2", {"speed_mps": np.ones(5)}))
    enriched = with_elevation(unlabelled("car", trips), read_terrain_model(slope))
    assert all("grade" not in trip.channels for trip in enriched.trips)


def test_grade_of_a_standing_car_is_that_of_the_road():
    step_m = np.r_[np.full(20, 10.0), np.zeros(20), np.full(20, 10.0)]
    grade = road_grade(np.cumsum(step_m) * 0.03, step_m)
    assert grade == pytest.approx(np.full(60, 0.03))
    assert road_grade(np.ones(5), np.zeros(5)).tolist() == [0.0] * 5


def test_geotiff_without_rasterio_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "rasterio", None)
    (tmp_path / "dem.tif").write_bytes(b"II*\x00")
    with pytest.raises(DataError, match=r"pip install 'fedwatt\[elevation\]'"):
        read_terrain_model([tmp_path / "dem.tif"])


@pytest.fixture
def write_geotiff(tmp_path):
    """Writes heights as a GeoTIFF of cells of 1 degree whose corner is at 10 N, 20 E."""
    rasterio = pytest.importorskip(
        "rasterio", reason="rasterio is absent: pip install 'fedwatt[elevation]'"
    )

    def write(heights, crs="EPSG:4326", step_deg=1.0):
        path = tmp_path / "dem.tif"
        with rasterio.open(
            path,
            "w",
            driver="GTiff",
            height=heights.shape[0],
            width=heights.shape[1],
            count=1,
            dtype="float32",
            nodata=-9.0,
            crs=crs,
            transform=rasterio.Affine(step_deg, 0.0, 20.0, 0.0, -step_deg, 10.0),
        ) as file:
            file.write(heights.astype("float32"), 1)
        return path

    return write


def test_geotiff_heights_belong_to_the_middle_of_cells(write_geotiff):
    terrain = read_terrain_model([write_geotiff(np.array([[1, 2], [3, -9]]))])
    heights = terrain.elevation_m(np.array([9.5, 9.5, 8.5]), np.array([20.5, 21.0, 20.5]))
    assert heights == pytest.approx([1, 1.5, 3])
    # The void cell, the half cell beyond the last middle, and another country.
    unknown = terrain.elevation_m(np.array([8.5, 9.9, 50.0]), np.array([21.5, 20.5, 20.5]))
    assert np.isnan(unknown).all()


def test_a_window_of_a_geotiff_tells_what_the_whole_tells(write_geotiff):
    # Height = 100 x row + column; row 0 is at 9.995 N, column 0 at 20.005 E.
    rows, columns = np.mgrid[0:300, 0:200]
    terrain = read_terrain_model([write_geotiff(100.0 * rows + columns, step_deg=0.01)])
    row = np.array([17.25, 18.0, 299.0])
    column = np.array([3.5, 4.0, 199.0])
    latitude = 9.995 - 0.01 * row
    longitude = 20.005 + 0.01 * column
    for some in ([0], [1], [2], [0, 1], [0, 1, 2]):
        # 1e-6 of a cell is what degrees leave of a position; a row is 100 m.
        assert terrain.elevation_m(latitude[some], longitude[some]) == pytest.approx(
            (100 * row + column)[some], abs=1e-4
        )


def test_geotiffs_that_cannot_be_used(write_geotiff):
    with pytest.raises(DataError, match="Reproject it"):
        read_terrain_model([write_geotiff(np.zeros((2, 2)), crs="EPSG:32617")])
    path = write_geotiff(np.zeros((2, 2)))
    path.write_bytes(b"II*\x00")
    with pytest.raises(DataError, match=r"dem\.tif is not a readable GeoTIFF"):
        read_terrain_model([path])


def test_a_climb_over_a_geotiff_has_its_grade(write_geotiff):
    # 10 m a row of 0.01 degrees (1,111.95 m): 0.9 % up towards the south, rows going south.
    heights = np.repeat(10.0 * np.arange(100)[:, None], 50, axis=1)
    terrain = read_terrain_model([write_geotiff(heights, step_deg=0.01)])
    south = 9.8 - np.arange(200) * 20.0 / 111_195
    channels = {
        "speed_mps": np.full(200, 20.0),
        "latitude_deg": south,
        "longitude_deg": np.full(200, 20.2),
    }
    trip = with_elevation(unlabelled("car", (Trip("1", channels),)), terrain).trips[0]
    assert trip.channels["grade"] == pytest.approx(np.full(200, 10 / 1111.95), rel=1e-4)


STEP = 1 / 1200


def write_posts(path, rows, head="latitude_deg,longitude_deg,elevation_m"):
    path.write_text("\n".join([head, *(f"{a:.6f},{b:.6f},{z}" for a, b, z in rows)]) + "\n")
    return path


def test_posts_are_read_bilinearly_where_half_of_the_weight_is_known(tmp_path):
    # A lattice of 3 by 4 posts, rising 10 m a step north and 1 m a step east; one is missing.
    rows = [
        (42 + i * STEP, -83 + j * STEP, 10 * i + j)
        for i in range(3)
        for j in range(4)
        if (i, j) != (2, 3)
    ]
    terrain = read_terrain_model([write_posts(tmp_path / "posts.csv", rows, "Lat,lon,Height")])
    latitude = 42 + np.array([0.5, 1.0, 1.4, 1.9, 5.0]) * STEP
    longitude = -83 + np.array([0.5, 2.0, 2.5, 2.9, 0.0]) * STEP
    heights_m = terrain.elevation_m(latitude, longitude)
    # The third leaves out a corner of weight 0.2; the fourth one of 0.81; the fifth is outside.
    values = np.array([0.3, 0.3, 0.2])
    third = (values @ np.array([12.0, 13.0, 22.0])) / values.sum()
    assert heights_m[:3] == pytest.approx([5.5, 12.0, third], abs=0.01)
    assert np.isnan(heights_m[3:]).all()


def test_the_step_is_found_over_many_rounded_posts(tmp_path):
    # Degrees to six digits miss the step by up to 0.06 %, which adds up over 5,000 posts.
    rows = [(10 + i * STEP, 20 + (i % 2) * STEP, i) for i in range(5000)]
    terrain = read_terrain_model([write_posts(tmp_path / "posts.csv", rows)])
    assert terrain.elevation_m(np.array([10 + 4000 * STEP]), np.array([20.0])) == pytest.approx(
        [4000], abs=0.1
    )


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([(42, -83, 1), (42, -82, 1)], "2 points with a height; 4 are needed"),
        ([(-83, 142, 1), (-83, 143, 1), (-82, 142, 1), (-95, 143, 1)], "columns swapped"),
        ([(1, 1, 1), (2, 1.5, 1), (3, 2, 1), (4.4, 3, 1), (9, 9, 9)], "latitudes of its points"),
        ([(1, 1, 1), (1, 2, 1), (1, 3, 1), (1, 4, 1)], "one of latitudes"),
    ],
)
def test_what_is_no_lattice_of_posts_is_refused(tmp_path, rows, message):
    with pytest.raises(DataError, match=message):
        read_terrain_model([write_posts(tmp_path / "posts.csv", rows)])


def test_a_file_without_heights_is_refused(tmp_path):
    with pytest.raises(DataError, match="no column 'elevation_m'"):
        read_terrain_model([write_posts(tmp_path / "posts.csv", [(1, 2, 3)] * 4, "lat,lon,name")])


def northward(name: str, latitude_deg: float) -> Trip:
    """Drive 10 s north at 10 m/s."""
    latitude = latitude_deg + np.arange(10) * 10 / 111_195
    place = {"latitude_deg": latitude, "longitude_deg": np.full(10, -83.5)}
    return Trip(name, {"speed_mps": np.full(10, 10.0), **place})


def test_enriching_counts_trips(slope):
    covered = [northward(str(n), 42.2) for n in range(3)]
    blind = Trip("blind", {"speed_mps": np.ones(5)})
    fleet = [unlabelled("full", (*covered, blind)), unlabelled("poor", (covered[0], blind))]
    terrain = read_terrain_model(slope)
    every = Enrichment(terrain)
    assert [len(vehicle.trips) for vehicle in every.enriched(fleet)] == [4, 2]
    assert every.sentences() == ["Terrain: 4 of 6 trips have a grade."]


@pytest.mark.parametrize(
    ("trip", "message"),
    [
        (Trip("1", {"speed_mps": np.ones(5)}), "None of the 1 trips has positions"),
        (northward("1", 52.0), "covers none of the 1 trips with positions"),
    ],
)
def test_enriching_in_vain_is_refused(slope, trip, message):
    with pytest.raises(DataError, match=message):
        list(Enrichment(read_terrain_model(slope)).enriched([unlabelled("car", (trip,))]))
