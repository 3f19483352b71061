"""

When nothing is left to use: each reason once, and advice that fits it.
"""

import json

import pytest

from fedwatt.telemetry.cleaning.account import Account, nothing_left
from fedwatt.telemetry.cleaning.glitches import _other_unit


def test_accounts_add_up_and_survive_json():
    first = Account.passed_over("rows", 3, "duplicate") + Account.of("kept", "rows", 7)
    both = (
        first + Account.passed_over("rows", 2, "no time") + Account.of("repaired", "values", 4, "x")
    )
    assert both.count("read", "rows") == 5
    assert both.count("dropped", "rows") == 5
    assert both.count("dropped", "rows", "no time") == 2
    assert Account.from_json(json.loads(json.dumps(both.to_json()))) == both


def test_zero_leaves_no_entry():
    assert Account.of("dropped", "rows", 0, "never") == Account()


def test_sentence_names_the_most_frequent_reason_first():
    account = Account.of("dropped", "trips", 1, "a") + Account.of("dropped", "trips", 5, "b")
    assert account.sentence() == "0 trips kept; 6 dropped: 5 b, 1 a."


def test_one_is_not_plural():
    assert Account.of("kept", "vehicles", 1).sentence("vehicles") == "1 vehicle kept; 0 dropped."


def test_cut_trips_are_counted_before_and_after():
    remaining = Account.of("kept", "trips", 89)
    assert (remaining + Account.of("kept", "parts", 89)).sentence() == "89 trips kept; 0 dropped."
    cut = remaining + Account.of("kept", "parts", 97)
    assert cut.sentence() == "89 trips kept, cut at gaps into 97; 0 dropped."
    assert cut.sentence("rows") == "0 rows kept; 0 dropped."


def dropped(unit, **reasons):
    return Account.total(Account.of("dropped", unit, n, why) for why, n in reasons.items())


def test_wrong_signs_are_told_once_and_the_limits_are_left_alone():
    sign = "driving charges the pack (is the sign of current or power the other way round?)"
    trips = {"of vehicles left out": 89, "under 120 s": 11}
    message = nothing_left(dropped("vehicles", **{sign: 3}) + dropped("trips", **trips))
    assert message == (
        f"0 vehicles kept; 3 dropped: 3 {sign}. "
        "Correct the unit or sign, in the mapping if there is one, and import again."
    )


@pytest.mark.parametrize(
    ("vehicle", "trips", "advice"),
    [
        ("without a usable trip", {"under 120 s": 2}, "Lower the minimum seconds, or record more."),
        (
            "under 10 usable trips",
            {"of vehicles left out": 8, "under 500 m": 1},
            "Lower the minimum trips, or record more. Lower the minimum metres, or record more.",
        ),
        # Nothing usable at all: a lower minimum of trips would not help.
        ("under 10 usable trips", {"engine ran": 4}, "Ask for other vehicles."),
        (
            "without a usable trip",
            {"no pack current": 5},
            "Check that the columns of speed and of the pack's signals are right.",
        ),
    ],
)
def test_too_few_trips_are_explained_by_the_trips(vehicle, trips, advice):
    account = dropped("vehicles", **{vehicle: 1}) + dropped("trips", **trips)
    reasons = ", ".join(f"{number} {why}" for why, number in trips.items())
    assert nothing_left(account) == (
        f"0 vehicles kept; 1 dropped: 1 {vehicle}. "
        f"0 trips kept; {sum(trips.values())} dropped: {reasons}. {advice}"
    )


@pytest.mark.parametrize(
    ("ratio", "said"),
    [
        (0.28, "m/s read as km/h"),
        (0.45, "m/s read as mph"),
        (0.64, "mph read as km/h"),
        (1.55, "km/h read as mph"),
        (2.28, "mph read as m/s"),
        (3.5, "km/h read as m/s"),
        (20.0, "is the unit of speed another?"),
    ],
)
def test_the_distance_by_position_tells_the_unit(ratio, said):
    assert said in _other_unit(ratio)
