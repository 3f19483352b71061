"""What a channel is called, means and may be measured in is said alike everywhere."""

import re
from pathlib import Path

from fedwatt.data import trip
from fedwatt.data.cleaning.schema import CHANNELS
from fedwatt.data.readers.units import UNITS

PAGE = Path(__file__).parents[3] / "docs" / "data.md"


def test_the_page_lists_every_channel_of_a_mapping():
    rows = re.findall(r"^\| `(\w+)` \| (.+) \| (.+) \| (.+) \|$", PAGE.read_text("utf-8"), re.M)
    assert rows == [
        (name, CHANNELS[name].unit, CHANNELS[name].meaning, ", ".join(units))
        for name, units in UNITS.items()
    ]


def test_a_fleet_means_the_same_by_a_channel():
    shared = CHANNELS.keys() & trip.CHANNELS.keys()
    assert len(shared) == 15
    for name in shared:
        stored = trip.CHANNELS[name]
        assert (CHANNELS[name].unit, CHANNELS[name].meaning) == (stored.unit, stored.meaning)
