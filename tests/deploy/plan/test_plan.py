"""Signed plans and certificates: validity, versions, roles, revocation."""

from datetime import UTC, datetime, timedelta
from math import inf
from pathlib import Path

import pytest

from fedwatt.deploy.plan.certificates import SERVER, VEHICLE, Owner, check_certificate, create_owner
from fedwatt.deploy.plan.plan import make_plan, read_plan
from fedwatt.deploy.plan.store import KeyStore
from fedwatt.errors import DataError, RunError
from fedwatt.runs.config import from_toml, to_toml
from tests.deploy.fleets import config_text, credentials, owner, secured, signed

NOW = datetime.now(UTC)


def test_a_plan_is_complete_and_reads_back(tmp_path: Path) -> None:
    config = from_toml(secured(tmp_path))
    plan = read_plan(make_plan(config, owner()), owner().certificate)
    assert (plan.config.data, plan.config.methods) == (config.data, config.methods)
    assert to_toml(plan.config).splitlines() == plan.lines()[7:]
    assert signed(secured(tmp_path)) != signed(secured(tmp_path))  # each is carried out once


@pytest.mark.parametrize(
    ("now", "version", "reason"),
    [
        (NOW + timedelta(days=2), "0.1.0", "valid from"),
        (NOW - timedelta(days=2), "0.1.0", "the owner is not valid|valid from"),
        (NOW, "0.2.0", "this is 0.2.0"),
        (NOW, "0.0.9", "this is 0.0.9"),
    ],
)
def test_a_plan_holds_for_a_time_and_for_versions(
    now: datetime, version: str, reason: str, tmp_path: Path
) -> None:
    content = make_plan(from_toml(config_text(tmp_path)), owner(), days=1)
    read_plan(content, owner().certificate, version="0.1.7")
    with pytest.raises(DataError, match=reason):
        read_plan(content, owner().certificate, now=now, version=version)


def test_certificates_expire_have_one_role_and_one_issuer(tmp_path: Path) -> None:
    certificate = credentials("car-001").certificate
    assert check_certificate(certificate, owner().certificate, VEHICLE) == "car-001"
    for role, revoked, now, reason in (
        (SERVER, (), NOW, "not that of a server"),
        (VEHICLE, (certificate.serial_number,), NOW, "revoked"),
        (VEHICLE, (), NOW + timedelta(days=20), "not valid at"),
    ):
        with pytest.raises(DataError, match=reason):
            check_certificate(certificate, owner().certificate, role, revoked=revoked, now=now)
    create_owner(tmp_path / "other")
    other = Owner.read(tmp_path / "other" / "key.pem")
    with pytest.raises(DataError, match="not signed by this fleet's owner"):
        check_certificate(certificate, other.certificate, VEHICLE)
    with pytest.raises(RunError, match="has no plan"):
        KeyStore(tmp_path).signed_plan()


def test_the_epsilon_of_all_methods_of_a_plan_adds_up(tmp_path: Path) -> None:
    more = "noise_multiplier = 1.0\nclip_norm = 0.05\n"
    text = secured(tmp_path, "fedavg@private", more=more)
    again = f'[[method]]\nname = "fedavg@private"\nlabel = "again"\n{more}'
    single, double = (
        read_plan(signed(content), owner().certificate) for content in (text, text + again)
    )
    assert double.epsilon() == 2 * single.epsilon() > 0
    assert single.lines()[2].endswith("of updates; other sums have no noise")
    without = read_plan(signed(text + '[[method]]\nname = "fedavg"\n'), owner().certificate)
    assert without.epsilon() == inf and without.lines()[2] == "Differential privacy: none"
