"""Columns become channels by their names in five languages, their units and their readings."""

import polars as pl
import pytest

from fedwatt.telemetry.recognise.channel_columns import Guess, find_channels
from fedwatt.telemetry.recognise.table_sample import read_sample
from fedwatt.telemetry.recognise.understand import understand
from tests.telemetry.recognise.drives import drive, fleet


def guessed(tmp_path, **columns: pl.Expr | pl.Series | str) -> dict[str, Guess]:
    frame = drive(300).select(t="t", **columns)
    frame.write_csv(tmp_path / "log.csv")
    sample = read_sample(tmp_path / "log.csv")
    return find_channels(sample, ["t"], frame["t"])


@pytest.mark.parametrize(
    "names",
    [
        "Vehicle Speed [km/h]|HV Voltage|HV Current|SOC|Outside Temp|Altitude|Latitude|Longitude",
        "Geschwindigkeit|Batteriespannung|Batteriestrom|Ladezustand|Außentemperatur|Höhe|"
        "Breitengrad|Längengrad",
        "Vitesse|Tension batterie|Courant batterie|État de charge|Température extérieure|Altitude|"
        "Latitude|Longitude",
        "Velocidad|Tensión de batería|Corriente de batería|Estado de carga|Temperatura exterior|"
        "Altitud|Latitud|Longitud",
        "车速|总电压|总电流|剩余电量|环境温度|海拔|纬度|经度",
    ],
)
def test_five_languages(tmp_path, names: str) -> None:
    columns = dict(
        zip(
            names.split("|"),
            ("speed", "volt", "amp", "soc", "temp", "alt", "lat", "lon"),
            strict=True,
        )
    )
    values = {**columns, names.split("|")[0]: pl.col("speed") * 3.6}
    guesses = guessed(tmp_path, **values)
    expected = ("speed_mps", "voltage_v", "current_a", "soc", "ambient_c", "elevation_m")
    expected += ("latitude_deg", "longitude_deg")
    assert {name: guesses[name].column for name in expected} == dict(
        zip(expected, names.split("|"), strict=True)
    )
    assert guesses["soc"].unit == "1"


@pytest.mark.parametrize(
    ("column", "values", "channel", "unit"),
    [
        ("AirCon Power [kW]", pl.lit(0.5), "ac_w", "kW"),
        ("Klimaleistung", pl.lit(800.0), "ac_w", "W"),
        ("puissance chauffage", pl.lit(2.5), "heater_w", "kW"),
        ("空调功率(W)", pl.lit(800.0), "ac_w", "W"),
        ("SoC [%]", pl.col("soc") * 100, "soc", "%"),
        ("SoC [%]", pl.col("soc"), "soc", "1"),
        ("soc", pl.col("soc") * 100, "soc", "%"),
        ("Power", pl.lit(45.0), "power_w", "kW"),
        ("Battery V", pl.lit(360.0), "voltage_v", "V"),
        ("HV_A", pl.col("amp"), "current_a", "A"),
        ("Battery", pl.lit(80.0), "soc", "%"),
        ("Battery power", pl.lit(45_000.0), "power_w", "W"),
        ("Battery power (hp)", pl.lit(60.0), "power_w", "hp"),
        ("ambient", pl.lit(285.0), "ambient_c", "K"),
        ("outside temp", pl.lit(80.0), "ambient_c", "°F"),
        ("outside temp", pl.lit(55.0), "ambient_c", "°F"),
        ("Pack voltage", pl.lit(360_000.0), "voltage_v", "mV"),
        ("energy", pl.col("t") - 1.7e9, "energy_total_wh", "Wh"),
        ("Energy [Wh]", pl.col("amp"), "energy_step_wh", "Wh"),
    ],
)
def test_units_are_as_stated_or_as_readings_allow(tmp_path, column, values, channel, unit) -> None:
    guess = guessed(tmp_path, **{column: values})[channel]
    assert (guess.column, guess.unit) == (column, unit)


@pytest.mark.parametrize(
    "column",
    [
        "Wind Speed",
        "Motor Speed [rpm]",
        "Cell Voltage min",
        "12V battery voltage",
        "Heater Current",
        "Cumulative Energy Charged (kWh)",
        "Total energy recuperated [kWh]",
        "Remaining energy [Wh]",
        "Energy consumption [kWh/100km]",
        "avg_consumption_wh_km",
    ],
)
def test_what_belongs_to_something_else_is_left_alone(tmp_path, column) -> None:
    assert guessed(tmp_path, **{column: pl.lit(12.0)}) == {}


@pytest.mark.parametrize(
    ("readings", "taken"),
    [(pl.int_range(pl.len()) % 2, False), (pl.lit(0), True), (pl.int_range(pl.len()) % 3, True)],
)
def test_a_switch_is_no_power(tmp_path, readings, taken) -> None:
    assert ("heater_w" in guessed(tmp_path, heater=readings)) == taken


def test_the_better_of_two_columns_is_taken(tmp_path) -> None:
    guesses = guessed(tmp_path, **{"GPS speed": "speed", "Vehicle Speed": "speed"})
    assert guesses["speed_mps"].column == "Vehicle Speed"


def test_a_counter_of_what_was_charged_is_none_of_what_was_used(tmp_path) -> None:
    counters = {
        f"Cumulative Energy {what}": pl.col("t") - 1.7e9 for what in ("Charged", "Discharged")
    }
    assert guessed(tmp_path, **counters)["energy_total_wh"].column == "Cumulative Energy Discharged"


@pytest.mark.parametrize(("factor", "unit"), [(3.6, "km/h"), (1.0, "m/s"), (2.23694, "mph")])
def test_positions_tell_the_unit_of_speed(tmp_path, factor, unit) -> None:
    guesses = guessed(tmp_path, v=pl.col("speed") * factor, lat="lat", lon="lon")
    assert guesses["speed_mps"].unit == unit
    assert guesses["speed_mps"].why == "so the distance fits the positions"


@pytest.mark.parametrize(
    ("values", "channel"),
    [
        # Rises by 4, falls by 1 in braking: a counter of the net energy.
        (lambda n: 900 + 3 * (n // 2) + 4 * (n % 2), "energy_total_wh"),
        # The same, set back to 900 after every tenth row: falls of 12 are resets.
        (lambda n: 900 + (3 * (n // 2) + n % 2 * 0.5) % 15, "energy_total_wh"),
        # Energy in each row rises and falls alike.
        (lambda n: 2 + n % 2 * 4, "energy_step_wh"),
    ],
)
def test_a_counter_grows_more_than_it_falls(tmp_path, values, channel) -> None:
    numbers = [float(values(n)) for n in range(300)]
    assert channel in guessed(tmp_path, **{"Energy (Wh)": pl.Series(numbers)})


@pytest.mark.parametrize("sign", ["positive", "negative"])
def test_a_clock_that_starts_anew_with_each_drive_tells_the_sign(tmp_path, sign) -> None:
    # In order of time alone, each drive is followed by one that lags: speed falls where it rises.
    parts = [drive(600).slice(75 - 15 * n, 400) for n in range(6)]
    rows = pl.concat(part.with_columns(t=pl.int_range(pl.len())) for part in parts)
    amp = pl.col("amp") if sign == "positive" else -pl.col("amp")
    rows.select(
        elapsed_s="t", speed_kmh=pl.col("speed") * 3.6, voltage="volt", current=amp
    ).write_csv(tmp_path / "log.csv")
    understood = understand(tmp_path / "log.csv")
    assert understood.tables["channels"]["current_a"]["discharge"] == sign
    assert understood.reasons["current_a.discharge"].endswith("while speed rises")


def test_a_column_that_fits_its_name_in_no_unit_is_reported(tmp_path) -> None:
    vans = fleet(1).select(
        "van", time="t", speed=pl.col("speed") * 3.6, soc=pl.col("soc") * 100,
        voltage=pl.lit(3600.0), current="amp",
    )  # fmt: skip
    vans.write_csv(tmp_path / "log.csv")
    said = " ".join(understand(tmp_path).questions)
    assert "Column 'voltage' is named like voltage_v, but its readings, such as 3600.0" in said
    assert "fit none of its units (V, mV, kV) and are not used." in said
