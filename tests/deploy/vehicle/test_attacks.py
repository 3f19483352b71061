"""A malicious server against a vehicle's real request handler; a map of the tests of all attacks.

1  evaluate single windows by another horizon or split: signed plan, declared fields, one answer
    test_no_field_of_the_configuration_changes_without_a_new_signature
    test_requests_cannot_bring_settings
    test_a_round_is_answered_once_and_rounds_only_grow
    test_only_planned_requests_are_answered
2  enrol under another role, or as several vehicles: roles and names in certificates
    test_certificates_of_other_roles_and_names_are_in_no_sum
    test_another_vehicles_name_is_turned_away
    test_a_vehicle_s_certificate_makes_no_server
3  name code in the configuration: built-in names and installed packages only
    test_a_plan_that_names_code_is_refused_though_the_owner_signed_it
4  use up a vehicle's quota without its key: charged after authentication
    test_only_verified_requests_are_charged
    test_nobody_uses_up_a_vehicle_s_quota
5  run code from a model file or run folder: --trust
    test_runs_once_it_is_trusted
6  settings that compute for hours: a child process with limits
    test_a_greedy_plan_is_ended_and_the_vehicle_goes_on
    test_a_job_beyond_a_limit_ends_and_the_next_is_computed
7  compressed bombs: capped streams, bounded readers
    test_a_gzip_bomb_is_not_unpacked
    test_an_endless_response_is_cut_off
    test_inflate_to_the_byte
8  ask about data at enrolment: one bit
    test_enrolment_tells_nothing_but_enough
    test_the_page_lists_what_leaves_a_vehicle
    test_rounds_send_only_what_the_page_lists
9  keep revoked vehicles in sums, or the owner's key on the server: vehicles and the server check
    test_a_revoked_vehicle_is_in_no_sum_though_the_server_lies
    test_revocations_of_a_newer_plan_count_under_an_older_one
    test_a_server_refuses_to_start_where_it_can_read_the_owners_key
10 two runs in one folder: a lock
    test_a_second_run_into_the_same_folder_is_refused
    test_two_runs_at_once
    test_two_processes_on_one_state_are_refused
11 pages under another name, half-open requests, deep texts: checks and limits of the web server
    test_another_name_is_refused
    test_half_open_requests_end
    test_no_more_threads_than_connections
    test_depth_to_the_level
"""

import json
import re
import tomllib
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomli_w
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import Encoding

from fedwatt.deploy.plan.certificates import SERVER, VEHICLE, Owner, owner_certificate
from fedwatt.deploy.plan.plan import CONTEXT, FIELDS, canonical, make_plan
from fedwatt.deploy.server.run_state import RUN_LOCK
from fedwatt.deploy.vehicle.acceptance import Acceptance
from fedwatt.deploy.vehicle.answers import MOST_SET_CHANGES, Answers
from fedwatt.deploy.vehicle.handler import RequestHandler
from fedwatt.deploy.vehicle.messages import REPLIES, VECTOR
from fedwatt.deploy.wire import Content, pack, unpack
from fedwatt.errors import DataError, RunError, SettingError
from fedwatt.files import holding
from fedwatt.privacy.secure.keys import public_bytes
from fedwatt.runs.config import SECTIONS, MethodChoice, RunConfig, from_toml
from tests.deploy.fleets import (
    OPEN,
    Loopback,
    config_text,
    credentials,
    deployed,
    loopback,
    make_fleet,
    owner,
    plan_of,
    secured,
    signed,
)


def test_every_attack_of_the_map_has_its_tests() -> None:
    tests = "".join(file.read_text() for file in (Path(__file__).parents[2]).rglob("test_*.py"))
    names = re.findall(r"^    (test_\w+)$", __doc__ or "", re.MULTILINE)
    assert len(names) == 29
    assert [name for name in names if f"def {name}(" not in tests] == []


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_fleet(tmp_path_factory.mktemp("attacks") / "fleet")


@pytest.fixture
def vehicle(fleet: Path, tmp_path: Path) -> RequestHandler:
    return loopback(fleet, tmp_path / "state").vehicles[1]


def ask(
    vehicle: RequestHandler, kind: str, arrays: dict[str, Any] | None = None, **values: Any
) -> Content:
    return unpack(vehicle.handle(pack(Content({"kind": kind, **values}, arrays or {}))))


def enrol(vehicle: RequestHandler, content: bytes) -> str:
    return str(ask(vehicle, "enrol", signed_plan=content).values["status"])


def status(
    vehicle: RequestHandler, kind: str, arrays: dict[str, Any] | None = None, **values: Any
) -> str:
    return str(ask(vehicle, kind, arrays, **values).values["status"])


def changed_fields(table: dict[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Every configuration that differs from `table` in one field, by the field's name."""
    for name, value in table.items():
        where = (*path, name)
        if isinstance(value, dict):
            for field, other in changed_fields(value, where):
                yield field, {**table, name: other}
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            for field, other in changed_fields(value[0], where):
                yield field, {**table, name: [other, *value[1:]]}
        else:
            yield ".".join(where), {**table, name: _another(value)}


def _another(value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + 1
    return [*value, 1] if isinstance(value, list) else f"{value}x"


def all_settings(config: RunConfig) -> set[str]:
    """The name of every setting of a run with one method, from the classes that hold them."""
    parts = {field.name for field in fields(RunConfig)}
    assert parts == {"methods", "seeds", "device", *SECTIONS, "plugins"}
    (choice,) = config.methods
    choice_fields = {field.name for field in fields(MethodChoice)} - {"method"} | {"name"}
    return (
        {"seeds", "device"}
        | {f"{name}.{field.name}" for name, kind in SECTIONS.items() for field in fields(kind)}
        | {f"method.{name}" for name in choice_fields | choice.method.settings.keys()}
    )


def test_no_field_of_the_configuration_changes_without_a_new_signature(
    vehicle: RequestHandler, fleet: Path
) -> None:
    more = 'learning_rate = 0.01\nschedule = "constant"\n'
    content = signed(config_text(fleet, "fo-ri-fedavg", more=more))
    table = json.loads(content)
    changed = dict(changed_fields(tomllib.loads(table["plan"]["configuration"])))
    assert changed.keys() == all_settings(plan_of(content).config)
    assert {"data.horizon", "data.split_seed", "model.name", "method.alpha"} <= changed.keys()
    changed["plugins"] = {**changed["device"], "plugins": {"model": {"mlp": "0" * 64}}}
    for name, other in changed.items():
        plan = {**table["plan"], "configuration": tomli_w.dumps(other)}
        assert enrol(vehicle, canonical({**table, "plan": plan})) == "failed", name
    assert table["plan"].keys() == FIELDS
    for name in FIELDS - {"configuration"}:
        plan = {**table["plan"], name: ["1"] if name != "id" else "0"}
        assert enrol(vehicle, canonical({**table, "plan": plan})) == "failed", name
    assert not list(vehicle.state.rglob("plan.json"))
    assert enrol(vehicle, content) == "done"


def test_another_owners_signature_does_not_count(vehicle: RequestHandler, fleet: Path) -> None:
    key = ed25519.Ed25519PrivateKey.generate()
    foreign = Owner(key, owner_certificate(key))
    assert enrol(vehicle, make_plan(from_toml(config_text(fleet)), foreign)) == "failed"


def test_requests_cannot_bring_settings(vehicle: RequestHandler, fleet: Path) -> None:
    content = signed(config_text(fleet))
    plan = plan_of(content)
    assert enrol(vehicle, content) == "done"
    size = 8 * 80 + 8 + 8 * 4 + 4 + 4 + 1
    request = {"plan": plan.digest, "method": "fedavg", "round": 0}
    weights = {"weights": np.zeros(size, dtype=np.float32)}
    for extra in ("config", "horizon", "data.horizon", "features", "model", "seed"):
        assert status(vehicle, "evaluate", weights, **request, **{extra: "1"}) == "failed"
    assert status(vehicle, "evaluate", {**weights, "labels": np.zeros(3)}, **request) == "failed"
    assert status(vehicle, "evaluate", weights, **{**request, "plan": "0" * 64}) == "failed"
    assert status(vehicle, "evaluate", weights, **{**request, "method": "x"}) == "failed"
    assert status(vehicle, "evaluate", weights, **request) == "done"


def test_a_round_is_answered_once_and_rounds_only_grow(
    vehicle: RequestHandler, fleet: Path
) -> None:
    content = signed(config_text(fleet))
    enrol(vehicle, content)
    size = 8 * 80 + 8 + 8 * 4 + 4 + 4 + 1
    request = {"plan": plan_of(content).digest, "method": "fedavg"}
    sent = {"population": 4, "population_windows": 400.0, "counted": -1}

    def train(round: int, value: float) -> bytes:
        arrays = {"weights": np.full(size, value, dtype=np.float32)}
        values = {"kind": "train", **request, **sent, "round": round}
        return vehicle.handle(pack(Content(values, arrays)))

    first = train(0, 0.1)
    assert unpack(first).values["status"] == "done"
    assert train(0, 0.1) == first  # the same bytes
    assert unpack(train(0, 0.2)).values["status"] == "failed"
    assert unpack(train(1, 0.2)).values["status"] == "done"
    assert train(0, 0.1) == first
    assert unpack(train(0, 0.3)).values["status"] == "failed"
    assert unpack(train(3, 0.3)).values["status"] == "failed"  # the plan has three rounds
    assert unpack(train(-1, 0.3)).values["status"] == "failed"
    # A restart forgets nothing.
    again = RequestHandler(vehicle.folder, vehicle.state, vehicle.credentials, OPEN)
    vehicle.handle = again.handle
    assert unpack(train(1, 0.9)).values["status"] == "failed"


def test_code_cannot_be_named(fleet: Path) -> None:
    for change in (
        ("hidden = [8, 4]", 'name = "fedwatt.cli:main"'),
        ("window = 10", 'window = 10\nfeatures = "./evil.py:feature"'),
    ):
        with pytest.raises(SettingError):
            signed(config_text(fleet).replace(*change))


def test_a_plan_that_names_code_is_refused_though_the_owner_signed_it(
    vehicle: RequestHandler, fleet: Path
) -> None:
    table = json.loads(signed(config_text(fleet)))
    text = table["plan"]["configuration"].replace('name = "mlp"', 'name = "fedwatt.cli:main"')
    assert "fedwatt.cli:main" in text
    plan = {**table["plan"], "configuration": text}
    signature = owner().key.sign(CONTEXT + canonical(plan)).hex()
    assert enrol(vehicle, canonical({"plan": plan, "signature": signature})) == "failed"


@pytest.mark.parametrize(
    ("acceptance", "reason"),
    [
        (Acceptance(), "secure_aggregation"),
        (replace(OPEN, largest_epsilon=1.0), "largest_epsilon"),
    ],
)
def test_a_plan_outside_the_acceptance_file_is_refused(
    acceptance: Acceptance, reason: str, fleet: Path, tmp_path: Path
) -> None:
    vehicle = loopback(fleet, tmp_path / "state", acceptance).vehicles[1]
    reply = ask(vehicle, "enrol", signed_plan=signed(config_text(fleet)))
    assert reply.values == {"status": "refused", "reason": reason}


def test_sums_of_fewer_vehicles_than_accepted_are_refused(fleet: Path, tmp_path: Path) -> None:
    content = signed(secured(fleet))
    strict = replace(OPEN, smallest_sum=4)
    vehicle = loopback(fleet, tmp_path / "state", strict).vehicles[1]
    reply = ask(vehicle, "enrol", signed_plan=content)
    assert reply.values == {"status": "refused", "reason": "smallest_sum"}


def test_enrolment_tells_nothing_but_enough(fleet: Path, tmp_path: Path) -> None:
    vehicle = loopback(fleet, tmp_path / "state").vehicles[1]
    reply = ask(vehicle, "enrol", signed_plan=signed(secured(fleet)))
    assert reply.values.keys() == {"status", "vehicle", "enough", "version"}
    assert reply.values["enough"] is True and not reply.arrays


def test_plain_replies_are_not_given_under_secure_aggregation(fleet: Path, tmp_path: Path) -> None:
    grid = loopback(fleet, tmp_path / "state")
    deployed(secured(fleet, rounds=1), grid, tmp_path / "run")
    train = next(body for node, kind, body in grid.asked if kind == "train" and node == 1)
    content = unpack(train)
    values = {n: v for n, v in content.values.items() if not n.startswith("secure.")}
    bare = pack(Content(values, content.arrays))
    assert unpack(grid.vehicles[1].handle(bare)).values == {"status": "failed"}
    assert unpack(grid.vehicles[1].handle(train)).values == {"status": "failed"}  # once


def test_a_revoked_vehicle_is_in_no_sum_though_the_server_lies(
    fleet: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The server admits a revoked vehicle; the vehicle itself and the others refuse."""
    grid = loopback(fleet, tmp_path / "state")
    name = grid.vehicles[1].name
    serial = credentials(name).certificate.serial_number
    content = signed(secured(fleet, rounds=1), revoked=[serial])
    assert enrol(grid.vehicles[1], content) == "failed"
    # A vehicle whose handler was changed to ignore its own revocation.
    old = signed(secured(fleet, rounds=1))
    text = secured(fleet, rounds=1).replace("vehicles = 4", "vehicles = 3")
    content = signed(text, revoked=[serial])
    liar = grid.vehicles[1]
    liar._enrol = lambda request: RequestHandler._enrol(  # type: ignore[method-assign]
        liar, Content({**request.values, "signed_plan": old}, {})
    )
    run = deployed(content, grid, tmp_path / "run")
    record = json.loads((run / "environment.json").read_text())
    assert record
    survivors = {node for node, kind, _ in grid.sent if kind == "sum-reveal"}
    assert 1 not in survivors


def test_sets_of_vehicles_in_sums_over_places_change_a_few_times(tmp_path: Path) -> None:
    from fedwatt.deploy.vehicle.answers import Slot

    answers = Answers(tmp_path)
    for number in range(MOST_SET_CHANGES + 1):
        checks = answers.check_set([f"car-{n}" for n in range(10 - number)])
        answers.add(Slot("elevation", "", number), "r", vehicles=checks)
    answers.check_set([f"car-{n}" for n in range(10 - MOST_SET_CHANGES)])
    with pytest.raises(DataError, match="changed too often"):
        Answers(tmp_path).check_set(["car-0", "car-1"])


def listed(secure: bool) -> dict[str, set[str]]:
    """Return the fields that docs/privacy.md lists, by kind of request."""
    page = (Path(__file__).parents[3] / "docs" / "privacy.md").read_text(encoding="utf-8")
    _, _, replies = page.partition("**Replies**")
    under_masks, _, plain = replies.partition("Under a plan without secure aggregation")
    page_fields: dict[str, set[str]] = {}
    for text in (under_masks,) if secure else (under_masks, plain.partition("Trips, positions")[0]):
        for line in text.splitlines():
            if line.startswith("| `"):
                kinds, contents = line.strip("| ").split(" | ", 1)
                for kind in re.findall("`([^`]+)`", kinds):
                    more = page_fields.get(kind, set()) if kind == "enrol" else set()
                    page_fields[kind] = more | set(re.findall("`([^`]+)`", contents))
    return page_fields


@pytest.mark.parametrize("secure", [True, False])
def test_the_page_lists_what_leaves_a_vehicle(secure: bool, fleet: Path, tmp_path: Path) -> None:
    """Fields of every kind on docs/privacy.md are those in the bytes of a captured run."""
    page = listed(secure)
    text = secured(fleet, rounds=1) if secure else config_text(fleet, "ditto", rounds=1)
    grid: Loopback = loopback(fleet, tmp_path / "state")
    deployed(text, grid, tmp_path / "run")
    captured: dict[str, set[str]] = {}
    for _, kind, body in grid.sent:
        content = unpack(body)
        assert pack(content) == body, "no byte beside the fields"
        names = {*content.values, *content.arrays} - {"status"}
        assert captured.setdefault(kind, names) == names
    steps = {"sum-keys", "sum-shares", "sum-agree", "sum-reveal"} if secure else {"personalise"}
    assert captured.keys() == {"enrol", "train", "evaluate", "final", *steps}
    for kind, names in captured.items():
        assert names == page[kind], kind
    # Every kind that a vehicle may send is on the page, maps included, with its declared fields.
    declared = {kind: set(names) for kind, names in REPLIES.items() if kind != VECTOR}
    for kind in declared if not secure else declared.keys() - {"train", "evaluate", "final"}:
        if kind not in ("enrol", "personalise"):
            assert page[kind] == declared[kind], kind
    assert page.keys() == declared.keys() | {"elevation", "routes"}


def test_certificates_of_other_roles_and_names_are_in_no_sum(fleet: Path) -> None:
    """One key cannot stand for several vehicles, nor a server's for a vehicle."""
    key = ec.generate_private_key(ec.SECP256R1())
    public = public_bytes(key.public_key())
    trust = credentials("car-001").trust(plan_of(signed(secured(fleet))))

    def check(name: str, role: str, claimed: str) -> None:
        certificate = owner().issue(name, role, key.public_key(), 10)
        trust.check_voucher(claimed, public, certificate.public_bytes(Encoding.DER))

    check("car-002", VEHICLE, "car-002")
    for name, role, claimed, reason in (
        ("car-002", SERVER, "car-002", "not that of a vehicle"),
        ("car-002", VEHICLE, "car-003", "not that of its certificate"),
        ("car-002", VEHICLE, "", "not that of its certificate"),
    ):
        with pytest.raises(DataError, match=reason):
            check(name, role, claimed)
    stranger = owner().issue(
        "car-002", VEHICLE, ec.generate_private_key(ec.SECP256R1()).public_key(), 10
    )
    with pytest.raises(DataError, match="not that of its certificate"):
        trust.check_voucher("car-002", public, stranger.public_bytes(Encoding.DER))
    with pytest.raises(DataError, match="has sent no certificate"):
        trust.check_voucher("car-002", public, b"none")


def test_a_second_run_into_the_same_folder_is_refused(fleet: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    with holding(out, RUN_LOCK, ""), pytest.raises(RunError, match="A run is going on in"):
        deployed(config_text(fleet, rounds=1), loopback(fleet, tmp_path / "a"), out)
    deployed(config_text(fleet, rounds=1), loopback(fleet, tmp_path / "a"), out)
    with pytest.raises(RunError):
        deployed(config_text(fleet, rounds=2), loopback(fleet, tmp_path / "b"), out)


def test_damaged_and_replayed_messages_of_a_sum_are_refused(fleet: Path, tmp_path: Path) -> None:
    """Every request of a run once more, in any order and cut off anywhere, tells nothing new."""
    grid = loopback(fleet, tmp_path / "state")
    deployed(secured(fleet, rounds=1), grid, tmp_path / "run")
    vehicle = grid.vehicles[1]
    requests = [(kind, body) for node, kind, body in grid.asked if node == 1]
    sent = {body for node, kind, body in grid.sent if node == 1}
    for kind, body in requests[::-1]:
        reply = vehicle.handle(body)
        if kind not in ("enrol", "sum-agree", "sum-reveal"):
            assert unpack(reply).values["status"] == "failed", kind
        elif unpack(reply).values["status"] == "done" and kind != "enrol":
            # The last exchange is still in memory: the same shares once more, or a new signature.
            assert kind == "sum-agree" or reply in sent
        for end in (0, 7, len(body) // 2, len(body) - 1):
            assert unpack(vehicle.handle(body[:end])).values == {"status": "failed"}
