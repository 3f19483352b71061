"""Proposals of mappings: what is stated, what is guessed, and that they read their file."""

import polars as pl
import pytest

from fedwatt.errors import DataError
from fedwatt.telemetry.readers import import_csv
from fedwatt.telemetry.readers.mapping import parse_mapping
from fedwatt.telemetry.recognise.understand import mapping_text, understand
from tests.telemetry.readers.test_mapping_reader import table


def test_a_proposed_mapping_reads_its_file(tmp_path):
    frame = table(current=-20.0).rename(
        {
            "t": "Timestamp(ms)",
            "car": "VehId",
            "drive": "Trip",
            "v": "Vehicle Speed[km/h]",
            "U": "HV Battery Voltage[V]",
            "I": "HV Battery Current[A]",
        }
    )
    frame = frame.with_columns(pl.col("Timestamp(ms)") * 1000, pl.lit(7.0).alias("Wind Speed[m/s]"))
    path = tmp_path / "log.csv"
    frame.write_csv(path, separator=";")
    text = mapping_text(understand(path))
    assert 'unit = "ms"' in text
    assert 'discharge = "negative"' in text
    assert "# Not used: Wind Speed[m/s]" in text
    (vehicle,) = import_csv([path], parse_mapping(text, "proposed.toml"))
    assert vehicle.trips[0].channels["energy_wh"].sum() == pytest.approx(400.0)


def test_a_proposal_for_other_names(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text(
        "time,lat,lng,speed_mps,battery_power_kW,SOC,altitude_m,motor_speed\n"
        "2024-05-01T00:00:00,1,2,3,4,50,6,7\n"
    )
    mapping = parse_mapping(mapping_text(understand(path)), "proposed.toml")
    assert mapping.time.unit == "iso"
    assert mapping.vehicle.source == "file"
    assert mapping.trip.source == "gaps"
    assert {name: channel.unit for name, channel in mapping.channels.items()} == {
        "speed_mps": "m/s",
        "power_w": "kW",
        "soc": "%",
        "latitude_deg": "degree",
        "longitude_deg": "degree",
        "elevation_m": "m",
    }


@pytest.mark.parametrize(
    ("column", "channel", "unit"),
    [
        ("outside_temp_f", "ambient_c", "°F"),
        ("outsideTempF", "ambient_c", "°F"),
        ("Outside temperature (Fahrenheit)", "ambient_c", "°F"),
        ("ambient_celsius", "ambient_c", "°C"),
        ("soc_pct", "soc", "%"),
        ("aircon_kw", "ac_w", "kW"),
        ("AirConditioning_W", "ac_w", "W"),
    ],
)
def test_a_unit_in_a_name_is_believed(tmp_path, column, channel, unit):
    path = tmp_path / "log.csv"
    path.write_text(f"time,speed_mps,{column}\n0,1,2\n")
    text = mapping_text(understand(path))
    assert f'column = "{column}"\nunit = "{unit}"    # by its name' in text
    assert parse_mapping(text, "proposed.toml").channels[channel].unit == unit


def test_a_proposal_ends_with_the_channels_still_free(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("time,speed_mps,cabin_fan\n0,1,2\n")
    used, free = mapping_text(understand(path)).split("# Not used: cabin_fan")
    assert "[channels.speed_mps]" in used
    assert "speed_mps]" not in free
    assert "\n# [channels.ac_w]    electric power of the air conditioning; W, kW, MW, hp\n" in free


def test_a_proposal_invents_no_evidence(tmp_path):
    path = tmp_path / "log.csv"
    for values, message in (
        ("0\n", "not known: its mean in the first rows is 0"),
        ("-2\n", "negative"),
    ):
        path.write_text(f"timestamp,speed_mps,hv_current_a\n0,1,{values}")
        assert message in mapping_text(understand(path))


def test_a_proposal_needs_a_file_with_rows(tmp_path):
    for text, fault in ((b"", "is empty"), (b"time,speed\n", "has no rows, only a header")):
        (tmp_path / "empty.csv").write_bytes(text)
        with pytest.raises(DataError, match=rf"empty\.csv {fault}"):
            understand(tmp_path / "empty.csv")
