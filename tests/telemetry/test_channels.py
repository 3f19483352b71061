"""Names, meanings and units of channels are declared once."""

from math import isnan

import pytest

from fedwatt.telemetry.channels import CHANNELS, ENERGY_SOURCES, POSITION, STORED


def test_raw_channels_are_not_stored():
    assert set(CHANNELS) - set(STORED) == {
        "power_w",
        "energy_step_wh",
        "energy_total_wh",
        "engine_rpm",
    }


@pytest.mark.parametrize("name", CHANNELS)
def test_every_declaration_makes_sense(name):
    channel = CHANNELS[name]
    assert channel.low < channel.high
    if channel.fallback is not None and not isnan(channel.fallback):
        assert channel.low <= channel.fallback <= channel.high
    if channel.units:
        assert channel.usual_unit in channel.units
    # What is read from a recording has limits, and what is resampled is stored.
    assert channel.rule == "none" or (channel.units and name in STORED)
    assert (channel.role == "position") == (name in POSITION)


def test_energy_never_comes_from_an_input():
    for name in (name for names in ENERGY_SOURCES for name in names):
        assert CHANNELS[name].role in ("label", "raw")


@pytest.mark.parametrize("name", ["ac_w", "heater_w"])
def test_power_that_is_never_reported_is_unknown_not_off(name):
    assert isnan(CHANNELS[name].fallback)
