"""The recipe of `fedwatt run`: what is switched on, and what is said about it."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedwatt.errors import DataError
from fedwatt.methods.catalogue import RECOMMENDED
from fedwatt.runs.config import RunConfig, from_tables
from fedwatt.runs.defaults import (
    BUILT_IN,
    PLAIN,
    RECORDED,
    UNREPORTED_HEATER,
    WITH_ELEVATION,
    choose_recipe,
)
from fedwatt.telemetry import Trip, Vehicle
from fedwatt.telemetry.store import write_fleet


def filled(tables: dict[str, Any]) -> dict[str, Any]:
    return choose_recipe(tables).applied(tables)


def store(folder: Path, *channels: str) -> str:
    """Store a fleet of one vehicle with speed and these channels, and return its folder."""
    values = {name: np.ones(90) for name in ("speed_mps", *channels)}
    trip = Trip(name="one", channels=values)
    write_fleet(folder, [Vehicle(name="car", trips=[trip])], source="test")
    return str(folder)


def test_the_built_in_fleet_learns_elevation_and_personalises() -> None:
    config = from_tables(filled({}))
    assert config.data.features == WITH_ELEVATION
    assert config.personalisation.enabled
    assert [choice.label for choice in config.methods] == [RECOMMENDED, "fo-ri-fedavg"]
    first, second = BUILT_IN.sentences(config)
    assert first == "Recipe: elevation (learned from energy and positions), personalised models."
    assert second.endswith("--plain trains the paper's set-up.")


def test_settings_that_are_given_come_before_the_recipe() -> None:
    inputs = {"data": {"features": "speed", "window": 30}, "personalisation": {"enabled": False}}
    tables = filled(inputs)
    assert tables["data"] == inputs["data"]
    assert not tables["personalisation"]["enabled"]
    assert BUILT_IN.sentences(from_tables(tables))[0] == "Recipe: network alone."
    assert filled({"training": {"rounds": 5}})["training"] == {"rounds": 5}
    config = from_tables(filled({"data": {"window": 30}}))
    assert (config.data.window, config.data.features) == (30, WITH_ELEVATION)


def test_large_and_private_fleets_keep_the_plain_defaults() -> None:
    for tables in (
        {"fleet": {"vehicles": 20_000}},
        {"fleet": {"made": "on-demand"}},
        {"method": [{"name": "fedavg@private"}]},
    ):
        assert filled(tables) == tables, tables
    assert filled({"fleet": {"vehicles": 19_999}}).keys() > BUILT_IN.sections.keys()
    assert PLAIN.sentences(RunConfig()) == []


@pytest.mark.parametrize(
    ("channels", "elevation", "sentence"),
    [
        (("energy_wh", "latitude_deg", "longitude_deg"), True, "(learned from energy and"),
        (("energy_wh", "elevation_m"), True, "(measured)"),
        (("energy_wh", "elevation_m", "latitude_deg", "longitude_deg"), True, "(measured, else"),
        (("energy_wh",), False, "without elevation, because no vehicle has positions"),
    ],
)
def test_a_stored_fleet_gets_what_its_channels_allow(
    tmp_path: Path, channels: tuple[str, ...], elevation: bool, sentence: str
) -> None:
    inputs = {"fleet": {"data": store(tmp_path / "fleet", *channels)}}
    config = from_tables(filled(inputs))
    assert [choice.label for choice in config.methods] == [RECOMMENDED]
    assert config.personalisation.enabled and config.data.align and config.model.mixture
    assert (config.data.features == UNREPORTED_HEATER) == elevation
    assert sentence in " ".join(choose_recipe(inputs).sentences(config))


@pytest.mark.parametrize(
    ("heater_w", "features"), [(math.nan, UNREPORTED_HEATER), (0.0, RECORDED), (900.0, RECORDED)]
)
def test_a_fleet_that_reports_no_heater_reads_the_square_of_cold(
    tmp_path: Path, heater_w: float, features: str
) -> None:
    def vehicle(name: str, power_w: float) -> Vehicle:
        channels = dict.fromkeys(("speed_mps", "energy_wh", "elevation_m"), np.ones(100))
        trip = Trip("1", {**channels, "heater_w": np.full(100, power_w)})
        return Vehicle(name=name, trips=[trip])

    vehicles = [vehicle("silent", math.nan), vehicle("car", heater_w)]
    write_fleet(tmp_path / "fleet", vehicles, source="test")
    recipe = choose_recipe({"fleet": {"data": str(tmp_path / "fleet")}})
    assert recipe.sections["data"]["features"] == features


@pytest.mark.parametrize(
    ("facts", "seconds", "target", "window"),
    [
        ({"pack_capacity_wh": 6100}, 300, "energy-from-soc", 300),
        ({"pack_capacity_wh": 6100}, 299, "energy-from-soc", 240),
        ({}, 100, "soc", 120),
    ],
)
def test_a_fleet_without_energy_predicts_from_its_state_of_charge(
    tmp_path: Path, facts: dict[str, float], seconds: int, target: str, window: int
) -> None:
    channels = dict.fromkeys(
        ("speed_mps", "soc", "latitude_deg", "longitude_deg"), np.ones(seconds)
    )
    trips = [Trip(name=name, channels=channels) for name in "abc"]
    write_fleet(tmp_path / "fleet", [Vehicle(name="car", trips=trips, facts=facts)], source="test")
    inputs = {"fleet": {"data": str(tmp_path / "fleet")}}
    config = from_tables(filled(inputs))
    assert (config.data.target, config.data.window) == (target, window)
    assert config.personalisation.enabled
    assert not config.data.align and not config.model.mixture
    assert config.data.features == "base"
    recipe, why = choose_recipe(inputs).sentences(config)
    assert recipe == f"Recipe: target {target} over {window} s, personalised models."
    assert "no vehicle recorded power or energy" in why


def test_a_fleet_that_is_not_there_is_named() -> None:
    with pytest.raises(DataError, match="nowhere"):
        choose_recipe({"fleet": {"data": "nowhere"}})
