import numpy as np
import pytest

from fedwatt.errors import DataError
from fedwatt.telemetry.maps import read_terrain_model

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
    found = terrain.elevation_m(latitude, longitude)
    # The third leaves out a corner of weight 0.2; the fourth one of 0.81; the fifth is outside.
    known = np.array([0.3, 0.3, 0.2])
    third = (known @ np.array([12.0, 13.0, 22.0])) / known.sum()
    assert found[:3] == pytest.approx([5.5, 12.0, third], abs=0.01)
    assert np.isnan(found[3:]).all()


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
