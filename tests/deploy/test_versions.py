"""A server serves vehicles of its own series and of the one before."""

import pytest

pytest.importorskip("flwr")

from fedwatt import __version__
from fedwatt.deploy import versions
from fedwatt.deploy.versions import series, version_fault


@pytest.mark.parametrize(
    ("vehicle", "what"),
    [
        ("0.3.0", ""),
        ("0.3.7", ""),
        ("0.2.9", ""),
        ("0.1.9", "update the vehicle"),
        ("0.4.0", "update the server first"),
        ("1.0.0", "update the server first"),
        ("nonsense", "update the vehicle"),
    ],
)
def test_the_last_two_series_are_served(vehicle: str, what: str) -> None:
    fault = version_fault(vehicle, "0.3.0", "0.2")
    assert fault.endswith(what) if what else fault == ""


def test_this_server_serves_its_own_series() -> None:
    assert version_fault(__version__) == ""
    assert series(__version__) != versions.BEFORE
