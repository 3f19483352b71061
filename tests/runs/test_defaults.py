"""What `fedwatt run` does unless it is told."""

from fedwatt.runs.config import from_tables
from fedwatt.runs.defaults import BUILT_IN, WITH_ELEVATION, with_recipe


def test_the_built_in_fleet_learns_elevation_and_personalises():
    config = from_tables(with_recipe({}))
    assert config.data.features == WITH_ELEVATION and config.personalisation.enabled


def test_settings_that_are_given_come_before_the_recipe():
    given = {"data": {"features": "speed", "window": 30}, "personalisation": {"enabled": False}}
    filled = with_recipe(given)
    assert filled["data"] == given["data"] and not filled["personalisation"]["enabled"]
    assert with_recipe({"training": {"rounds": 5}})["training"] == {"rounds": 5}
    config = from_tables(with_recipe({"data": {"window": 30}}))
    assert (config.data.window, config.data.features) == (30, WITH_ELEVATION)


def test_recorded_large_and_private_fleets_keep_the_plain_defaults():
    for tables in (
        {"fleet": {"data": "fleets/ved"}},
        {"fleet": {"data": "sketch"}},
        {"fleet": {"vehicles": 20_000}},
        {"fleet": {"made": "on-demand"}},
        {"method": [{"name": "fedavg@private"}]},
    ):
        assert with_recipe(tables) == tables, tables
    assert with_recipe({"fleet": {"vehicles": 19_999}}).keys() > BUILT_IN.keys()
