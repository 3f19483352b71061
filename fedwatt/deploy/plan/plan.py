"""A signed plan: everything that a fleet's vehicles compute in one training.

    {"plan": {"id", "fedwatt", "valid", "revoked", "configuration"}, "signature": hex}

The configuration is complete: every setting, its defaults included, as TOML. The signature is the
owner's Ed25519 signature of the plan as canonical JSON (sorted keys, no spaces, ASCII), and the
SHA-256 of the same bytes is the plan's digest, by which messages refer to it. A vehicle computes
from the plan alone; a change of any field needs a new signature.
"""

import json
import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from hashlib import sha256
from math import inf
from typing import Any
from uuid import uuid4

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ed25519

import fedwatt
from fedwatt.deploy.plan.certificates import Owner, check_owner
from fedwatt.errors import DataError, SettingError
from fedwatt.federation import Availability
from fedwatt.privacy import budget
from fedwatt.runs.config import RunConfig, Source, from_toml, to_toml
from fedwatt.runs.provenance import changed_since, refuse_uninstalled

CONTEXT = b"fedwatt plan 1\n"
"""Precedes the signed bytes, so that no other signature of the owner's key passes for a plan's."""
FIELDS = {"id", "fedwatt", "valid", "revoked", "configuration"}
LARGEST = 1_000_000
"""Bytes of a signed plan."""


@dataclass(frozen=True)
class Plan:
    """A plan whose signature was verified."""

    content: bytes
    """Canonical JSON."""
    config: RunConfig
    revoked: frozenset[int]
    """Serial numbers of certificates that no longer count."""
    valid: tuple[datetime, datetime]

    @cached_property
    def digest(self) -> str:
        """Return the SHA-256 of the plan, which names it in every message."""
        return sha256(self.content).hexdigest()

    def refuse_expired(self, now: datetime | None = None) -> None:
        """Raise DataError unless the plan is valid now."""
        start, end = self.valid
        now = now or datetime.now(UTC)
        if not start <= now <= end:
            raise DataError(
                f"the plan is valid from {start:%Y-%m-%d %H:%M} to {end:%Y-%m-%d %H:%M} UTC, and "
                f"it is {now:%Y-%m-%d %H:%M}"
            )

    def epsilon(self) -> float:
        """Return the ε of all its methods against a server that sees sums; inf without noise.

        It covers updates: errors and sums over places have no noise.

        δ is that of the plan's own number of vehicles, or of two where it leaves that open.
        """
        config = self.config
        spent = []
        for choice in config.methods:
            vehicles = max(config.deploy.vehicles, 2)
            share = config.training.participation
            method_budget = budget(choice.method, participation=share, population=vehicles)
            rounds = config.training.rounds
            spent.append(
                inf if method_budget is None else method_budget.seen_by_server.epsilon(rounds)
            )
        return sum(spent)

    def lines(self) -> list[str]:
        """Return the plan in readable form, the points that matter most first."""
        config = self.config
        training = self.config.training
        secure = (
            f"over at least {config.secure.smallest_sum} vehicles"
            if config.secure.enabled
            else "OFF"
        )
        start, end = (f"{moment:%Y-%m-%d %H:%M}" for moment in self.valid)
        epsilon = self.epsilon()
        privacy = f"ε = {epsilon:.3g} of updates; other sums have no noise"
        if epsilon == inf:
            privacy = "none"
        methods = ", ".join(choice.label for choice in config.methods)
        return [
            f"Plan {self.digest[:16]}, valid {start} to {end} UTC",
            f"Secure aggregation: {secure}",
            f"Differential privacy: {privacy}",
            f"Training: {methods}; {training.rounds} rounds, participation "
            f"{training.participation:g}",
            f"Data: {config.data.features}; windows of {config.data.window} samples, target "
            f"{config.data.target}",
            f"Elevation map: {config.elevation.source}; routes: {config.deploy.routes}",
            f"Revoked certificates: {len(self.revoked)}",
            *to_toml(config).splitlines(),
        ]


def make_plan(
    config: RunConfig,
    owner: Owner,
    *,
    days: float = 90.0,
    revoked: Sequence[int] = (),
) -> bytes:
    """Return a signed plan for `config`, valid from now on for so many days."""
    refuse_uninstalled(config.plugins)
    config = replace(
        config, fleet=Source(), availability=Availability(speeds=config.availability.speeds)
    )
    now = datetime.now(UTC).replace(microsecond=0)
    plan = {
        "id": uuid4().hex,
        "fedwatt": list(version_range(fedwatt.__version__)),
        "valid": [(now - timedelta(hours=1)).isoformat(), (now + timedelta(days=days)).isoformat()],
        "revoked": sorted(f"{serial:x}" for serial in revoked),
        "configuration": to_toml(config),
    }
    content = canonical(plan)
    signature = owner.key.sign(CONTEXT + content).hex()
    signed = canonical({"plan": plan, "signature": signature})
    read_plan(signed, owner.certificate)  # whatever a vehicle would refuse is refused here
    return signed


def read_plan(
    signed: bytes,
    owner: x509.Certificate,
    *,
    now: datetime | None = None,
    version: str = fedwatt.__version__,
) -> Plan:
    """Return the plan in `signed`; DataError unless the owner signed it and it holds now, here."""
    if len(signed) > LARGEST:
        raise DataError(f"a plan has at most {LARGEST:,} bytes, this one {len(signed):,}")
    check_owner(owner, now)
    try:
        table = json.loads(signed)
        plan = table["plan"]
        signature = bytes.fromhex(table["signature"])
        content = canonical(plan)
        key = owner.public_key()
        assert isinstance(key, ed25519.Ed25519PublicKey)  # check_owner has seen to it
        key.verify(signature, CONTEXT + content)
    except InvalidSignature as error:
        raise DataError("the plan is not signed by this fleet's owner") from error
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise DataError(f"the plan cannot be read ({error})") from error
    if set(plan) != FIELDS or set(table) != {"plan", "signature"}:
        raise DataError("the plan has other fields than this version of fedwatt knows")
    return _checked(plan, content, now, version)


def _checked(plan: dict[str, Any], content: bytes, now: datetime | None, version: str) -> Plan:
    """Return the plan of verified fields; DataError where it does not hold now, here."""
    try:
        start, end = (datetime.fromisoformat(text) for text in plan["valid"])
        first, below = (str(text) for text in plan["fedwatt"])
        revoked = frozenset(int(serial, 16) for serial in plan["revoked"])
        valid = start.astimezone(UTC), end.astimezone(UTC)
    except (ValueError, TypeError) as error:
        raise DataError(f"the plan cannot be read ({error})") from error
    if not _numbers(first) <= _numbers(version) < _numbers(below):
        raise DataError(
            f"the plan is for fedwatt {first} to below {below}, and this is {version}: install a "
            "version in that range"
        )
    read = Plan(content, read_configuration(str(plan["configuration"])), revoked, valid)
    read.refuse_expired(now)
    return read


def read_configuration(text: str) -> RunConfig:
    """Return the configuration of a plan; names of code outside installed packages are refused."""
    config = from_toml(text, "The plan's configuration")
    refuse_uninstalled(config.plugins)
    if changed := changed_since(text, config.plugins):
        name = next(name for names in changed.values() for name in names)
        raise SettingError(f"'{name}' is not the plan's version of it: install the same package.")
    complete = tomllib.loads(to_toml(config))
    if tomllib.loads(text) != complete:
        raise DataError("the plan's configuration is not complete")
    return config


def canonical(table: Any) -> bytes:
    """Return JSON that is the same for equal tables.

    >>> canonical({"b": 1, "a": [True]})
    b'{"a":[true],"b":1}'
    """
    text = json.dumps(table, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return text.encode("ascii")


def version_range(version: str) -> tuple[str, str]:
    """Return the versions that compute as `version` does: its series.

    >>> version_range("0.3.1")
    ('0.3.0', '0.4')
    """
    major, minor, *_ = _numbers(version)
    return f"{major}.{minor}.0", f"{major}.{minor + 1}"


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version)[:3])
