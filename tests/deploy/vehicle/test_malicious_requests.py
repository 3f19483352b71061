"""A malicious server's requests beyond the plan: odd kinds, types, orders, plans and clocks."""

import json
import logging
import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.serialization import Encoding
from typer.testing import CliRunner

from fedwatt.cli import app
from fedwatt.deploy import OneLineFormatter
from fedwatt.deploy.plan.certificates import (
    CERTIFICATE,
    KEY,
    OWNER,
    VEHICLE,
    check_certificate,
    private_bytes,
    write_certificate,
)
from fedwatt.deploy.transport import processes
from fedwatt.deploy.vehicle.acceptance import Acceptance
from fedwatt.deploy.vehicle.answers import MOST_FINAL, request_digest
from fedwatt.deploy.vehicle.compute import AcceptedRequest
from fedwatt.deploy.vehicle.handler import RequestHandler
from fedwatt.deploy.vehicle.messages import REQUESTS, SECURE, SUM_STEPS
from fedwatt.deploy.wire import Content, pack, unpack
from fedwatt.errors import DataError
from fedwatt.files import holding, read_rows, write_secret
from fedwatt.metrics.sums import VectorLayout
from fedwatt.privacy.secure.keys import public_bytes
from fedwatt.privacy.secure.messages import to_plain
from fedwatt.privacy.secure_settings import SecureTerms
from fedwatt.telemetry.store import read_vehicle, vehicle_folders
from tests.deploy.fleets import (
    OPEN,
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

SIZE = 8 * 80 + 8 + 8 * 4 + 4 + 4 + 1


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_fleet(tmp_path_factory.mktemp("malicious") / "fleet")


@pytest.fixture
def vehicle(fleet: Path, tmp_path: Path) -> RequestHandler:
    return loopback(fleet, tmp_path / "state").vehicles[1]


def ask(
    vehicle: RequestHandler, kind: str, arrays: dict[str, Any] | None = None, **values: Any
) -> str:
    body = pack(Content({"kind": kind, **values}, arrays or {}))
    return str(unpack(vehicle.handle(body)).values["status"])


def weights(value: float) -> dict[str, Any]:
    return {"weights": np.full(SIZE, value, dtype=np.float32)}


def test_only_planned_requests_are_answered(vehicle: RequestHandler, fleet: Path) -> None:
    """A plan that evaluates every second of its six rounds and personalises nothing."""
    text = config_text(fleet, rounds=6).replace("batch = 16", "batch = 16\nevaluate_every = 2")
    content = signed(text)
    assert ask(vehicle, "enrol", signed_plan=content) == "done"
    common = {"plan": plan_of(content).digest, "method": "fedavg"}
    assert ask(vehicle, "personalise", weights(0.1), **common, round=0) == "failed"
    answers = [ask(vehicle, "evaluate", weights(0.1), **common, round=n) for n in range(9)]
    # Model 1 may be the mean of a run that ends after round 0, as 3 and 5; 7 is the last mean.
    done = {n for n, answer in enumerate(answers) if answer == "done"}
    assert done == {0, 1, 2, 3, 4, 5, 6, 7}
    finals = [ask(vehicle, "final", weights(0.1 * n), **common, round=n) for n in range(9)]
    assert finals.count("done") == MOST_FINAL
    for kind in ("elevation", "routes"):
        values = {"elevation": {"count": True, "evaluated": 0, "segment_s": 0}, "routes": {}}[kind]
        values = values or {"asks": "counts"}
        assert ask(vehicle, kind, plan=common["plan"], number=0, **values) == "failed"


def test_a_wider_evaluation_interval_is_kept(vehicle: RequestHandler, fleet: Path) -> None:
    text = config_text(fleet, rounds=6).replace("batch = 16", "batch = 16\nevaluate_every = 4")
    content = signed(text)
    ask(vehicle, "enrol", signed_plan=content)
    common = {"plan": plan_of(content).digest, "method": "fedavg"}
    answers = [ask(vehicle, "evaluate", weights(0.1), **common, round=n) for n in range(9)]
    assert [n for n, answer in enumerate(answers) if answer == "done"] == [0, 1, 4, 5, 6, 7]


def test_a_model_is_personalised_once(vehicle: RequestHandler, fleet: Path) -> None:
    content = signed(config_text(fleet) + "\n[personalisation]\nenabled = true\n")
    ask(vehicle, "enrol", signed_plan=content)
    common = {"plan": plan_of(content).digest, "method": "fedavg"}
    assert ask(vehicle, "personalise", weights(0.1), **common, round=2) == "done"
    assert ask(vehicle, "personalise", weights(0.1), **common, round=2) == "done"  # the same bytes
    assert ask(vehicle, "personalise", weights(0.2), **common, round=3) == "failed"


def test_a_stricter_acceptance_file_counts_after_a_restart(fleet: Path, tmp_path: Path) -> None:
    vehicle = loopback(fleet, tmp_path / "state").vehicles[1]
    content = signed(config_text(fleet))
    assert ask(vehicle, "enrol", signed_plan=content) == "done"
    request = {"plan": plan_of(content).digest, "method": "fedavg", "round": 0}
    assert ask(vehicle, "evaluate", weights(0.1), **request) == "done"
    strict = RequestHandler(vehicle.folder, vehicle.state, vehicle.credentials, Acceptance())
    assert ask(strict, "evaluate", weights(0.1), **request) == "refused"
    assert ask(strict, "enrol", signed_plan=content) == "refused"


def test_the_epsilon_of_plans_adds_up(fleet: Path, tmp_path: Path) -> None:
    more = "noise_multiplier = 1.0\nclip_norm = 0.05\n"
    first, second = (signed(secured(fleet, "fedavg@private", 2, more)) for _ in range(2))
    epsilon = plan_of(first).epsilon()
    limit = replace(OPEN, largest_epsilon=1.5 * epsilon)
    vehicle = loopback(fleet, tmp_path / "state", limit).vehicles[1]
    assert ask(vehicle, "enrol", signed_plan=first) == "done"
    assert ask(vehicle, "enrol", signed_plan=second) == "refused"
    again = RequestHandler(vehicle.folder, vehicle.state, vehicle.credentials, limit)
    assert ask(again, "enrol", signed_plan=first) == "done"
    assert ask(again, "enrol", signed_plan=second) == "refused"


def test_revocations_of_a_newer_plan_count_under_an_older_one(
    vehicle: RequestHandler, fleet: Path
) -> None:
    older = signed(secured(fleet))
    other = credentials("car-002").certificate
    newer = signed(secured(fleet), revoked=[other.serial_number])
    key = other.public_key()
    voucher = "car-002", public_bytes(key), other.public_bytes(Encoding.DER)  # type: ignore[arg-type]
    digest = plan_of(older).digest
    assert ask(vehicle, "enrol", signed_plan=older) == "done"
    vehicle.credentials.trust(vehicle._plan(digest)[0]).check_voucher(*voucher)
    assert ask(vehicle, "enrol", signed_plan=newer) == "done"
    with pytest.raises(DataError, match="is revoked"):
        vehicle.credentials.trust(vehicle._plan(digest)[0]).check_voucher(*voucher)
    assert vehicle.revoked() == {other.serial_number}
    # A plan that revokes this vehicle itself ends its part in all plans, after a restart too.
    signed_plan = signed(secured(fleet), revoked=[vehicle.credentials.certificate.serial_number])
    assert ask(vehicle, "enrol", signed_plan=signed_plan) == "failed"


def test_rounds_of_two_plans_are_counted_apart_and_never_again(
    vehicle: RequestHandler, fleet: Path
) -> None:
    first, second = (signed(config_text(fleet)) for _ in range(2))
    requests = []
    for content in (first, second):
        assert ask(vehicle, "enrol", signed_plan=content) == "done"
        requests.append({"plan": plan_of(content).digest, "method": "fedavg", "round": 1})
    for _ in range(2):  # a server that goes to and fro between plans
        for request in requests:
            assert ask(vehicle, "evaluate", weights(0.1), **request) == "done"
            assert ask(vehicle, "evaluate", weights(0.2), **request) == "failed"
            assert ask(vehicle, "evaluate", weights(0.1), **{**request, "round": 0}) == "failed"


class Failing:
    """Fails at every computation, and counts them."""

    def __init__(self) -> None:
        self.kinds: list[str] = []

    def compute(self, job: Any) -> Content:
        self.kinds.append(job.kind)
        raise DataError("a weight is too large for this vehicle's windows")


def test_a_computation_that_fails_uses_its_round(vehicle: RequestHandler, fleet: Path) -> None:
    """Else a server could try models until one does not fail, and learn where that begins."""
    content = signed(config_text(fleet))
    assert ask(vehicle, "enrol", signed_plan=content) == "done"
    request = {"plan": plan_of(content).digest, "method": "fedavg", "round": 0}
    failing = Failing()
    computer = vehicle.computer
    vehicle.computer = failing
    for value in (0.1, 0.2, 0.1):
        assert ask(vehicle, "evaluate", weights(value), **request) == "failed"
    assert failing.kinds == ["evaluate", "evaluate"]  # the same request may be repeated
    vehicle.computer = computer
    assert ask(vehicle, "evaluate", weights(0.2), **request) == "failed"
    assert ask(vehicle, "evaluate", weights(0.1), **request) == "done"


def test_a_contribution_that_fails_uses_its_round(fleet: Path, tmp_path: Path) -> None:
    grid = loopback(fleet, tmp_path / "state")
    content = signed(secured(fleet, rounds=1))
    failing = Failing()

    def fail_from_now_on(kind: str, node: int, reply: bytes) -> bytes:
        if kind == "enrol" and node == 1:
            grid.vehicles[1].computer = failing
        return reply

    grid.tamper = fail_from_now_on
    deployed(content, grid, tmp_path / "run")
    kinds = [kind for node, kind, _ in grid.asked if node == 1 and kind not in SUM_STEPS]
    assert failing.kinds == kinds[1:] and "train" in kinds
    folder = grid.vehicles[1].state / "plans" / plan_of(content).digest
    used = [row["slot"][:2] for row in read_rows(folder / "answers.jsonl")]
    assert used == [[kind, "fedavg"] for kind in failing.kinds]


def test_a_vehicle_whose_training_diverges_is_in_the_sum_as_any_other(
    vehicle: RequestHandler, fleet: Path
) -> None:
    """Else weights that overflow from some speed on would tell who drove that fast."""
    content = signed(secured(fleet))
    plan = plan_of(content)
    assert ask(vehicle, "enrol", signed_plan=content) == "done"
    values = {"method": "fedavg", "round": 0, "counted": -1}
    request = Content({**values, "population": 4, "population_windows": 400.0}, weights(1e30))
    alone = vehicle.computer.compute(AcceptedRequest(plan.digest, "train", request))
    assert not np.isfinite(alone.arrays["delta"]).any()
    summed = vehicle.computer.compute(AcceptedRequest(plan.digest, "train", request, 4, 3))
    layout = VectorLayout({"weight": (1, 200_000.0), "delta": (SIZE, 16 * 200_000.0)}, 4, 48)
    decoded = layout.decode(summed.arrays["words"])
    assert decoded["weight"] == alone.values["windows"]
    assert not decoded["delta"].any() and decoded["clipped"] == 0


def test_an_exchange_is_not_begun_again_after_one_of_another_plan(
    vehicle: RequestHandler, fleet: Path
) -> None:
    digests = []
    for _ in range(2):
        content = signed(secured(fleet))
        assert ask(vehicle, "enrol", signed_plan=content) == "done"
        digests.append(plan_of(content).digest)

    def keys(digest: str, number: int) -> str:
        terms = SecureTerms(
            run=digest, number=number, called=4, threshold=3, length=9, bits=48, purpose="0" * 64
        )
        return ask(vehicle, "sum-keys", plan=digest, **to_plain(terms, SECURE))

    assert [keys(digests[0], 7), keys(digests[1], 0)] == ["done", "done"]
    assert [keys(digests[0], 7), keys(digests[1], 0)] == ["failed", "failed"]
    assert [keys(digests[0], 8), keys(digests[1], 1)] == ["done", "done"]


def test_two_requests_have_two_digests() -> None:
    """Though the name of one field holds what stands between two others."""
    joined = "a\0" + "11" + "\2\0\0\0\0\0\0\0" + "b"
    one = Content({joined: 22})
    other = Content({"a": 11, "b": 22})
    assert request_digest(one, ()) != request_digest(other, ())


def test_an_exchange_cannot_be_finished_under_another_plan(fleet: Path, tmp_path: Path) -> None:
    grid = loopback(fleet, tmp_path / "state")
    deployed(secured(fleet, rounds=1), grid, tmp_path / "run")
    other = signed(secured(fleet, rounds=1))
    vehicle = grid.vehicles[1]
    assert ask(vehicle, "enrol", signed_plan=other) == "done"
    for node, kind, body in grid.asked:
        content = unpack(body)
        if node == 1 and kind not in ("enrol", *SUM_STEPS):
            moved = content.with_values(plan=plan_of(other).digest)
            assert unpack(vehicle.handle(pack(moved))).values["status"] == "failed"
        if node == 1 and kind == "sum-keys":
            moved = content.with_values(plan=plan_of(other).digest)
            assert unpack(vehicle.handle(pack(moved))).values["status"] == "failed"


FREE = ("counted", "population", "population_windows", "secure.number")
"""A server may say what it likes about its fleet, and number its sums as it likes."""
ODD: list[Any] = [
    True, -1, 2**63, 10**300, 1e308, -0.0, "", "x" * 10_000, "\x1b[2J\n", [], [1], ["a", "b"],
    b"", b"\x00" * 100, [b"a", b""], None, {}, [None], float("nan"), float("inf"),
]  # fmt: skip


@pytest.mark.parametrize("secure", [False, True])
def test_fields_of_odd_types_are_refused(secure: bool, fleet: Path, tmp_path: Path) -> None:
    """Each field of each request of a run, replaced by odd values, after the run and before."""
    grid = loopback(fleet, tmp_path / "state")
    text = secured(fleet, rounds=1) if secure else config_text(fleet, rounds=1)
    deployed(text, grid, tmp_path / "run")
    seen: dict[str, Content] = {}
    for node, kind, body in grid.asked:
        if node == 1:
            seen.setdefault(kind, unpack(body))
    fresh = loopback(fleet, tmp_path / "fresh").vehicles[1]
    assert ask(fresh, "enrol", signed_plan=seen["enrol"].values["signed_plan"]) == "done"
    answered = list(fresh.state.rglob("answers.jsonl"))
    assert not answered
    for kind, content in seen.items():
        for name in content.values:
            for value in ODD:
                same = type(value) is type(content.values[name])
                if same and name in FREE:
                    continue
                try:
                    body = pack(content.with_values(**{name: value}))
                except (TypeError, ValueError):
                    continue  # no message can hold it
                for vehicle in (fresh, grid.vehicles[1]):
                    status = unpack(vehicle.handle(body)).values["status"]
                    assert status == "failed", (kind, name, value)
    assert not list(fresh.state.rglob("answers.jsonl"))


def test_random_bytes_are_refused(vehicle: RequestHandler, fleet: Path) -> None:
    content = signed(config_text(fleet))
    body = pack(Content({"kind": "enrol", "signed_plan": content}))
    draws = random.Random(1)
    for _ in range(300):
        spoiled = bytearray(body)
        for _ in range(draws.randint(1, 8)):
            spoiled[draws.randrange(len(spoiled))] = draws.randrange(256)
        if bytes(spoiled) != body:
            assert unpack(vehicle.handle(bytes(spoiled))).values["status"] in ("failed", "done")
    deep = json.dumps({"__metadata__": {"fedwatt": "[" * 100_000}}).encode()
    for header in (deep, b"[" * 100_000, b'{"__metadata__": {"fedwatt": "{}"}}', b"null"):
        framed = len(header).to_bytes(8, "little") + header
        assert unpack(vehicle.handle(framed)).values == {"status": "failed"}
    huge = (2**40).to_bytes(8, "little") + b"{}"
    assert unpack(vehicle.handle(huge)).values == {"status": "failed"}
    assert set(REQUESTS) >= {"enrol", "train"}


def test_an_expired_plan_is_no_longer_computed(vehicle: RequestHandler, fleet: Path) -> None:
    content = signed(config_text(fleet))
    ask(vehicle, "enrol", signed_plan=content)
    plan, answers = vehicle._plan(plan_of(content).digest)
    yesterday = datetime.now(UTC) - timedelta(days=1)
    vehicle._plans = {plan.digest: (replace(plan, valid=(yesterday, yesterday)), answers)}
    request = {"plan": plan.digest, "method": "fedavg", "round": 0}
    assert ask(vehicle, "evaluate", weights(0.1), **request) == "failed"


def test_a_certificate_that_expires_during_a_run_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The server looks again from time to time, though no file of its key store has changed."""
    applied: list[float] = []
    now = [1e9]
    monkeypatch.setattr(processes, "apply_store", lambda control: applied.append(now[0]))
    monkeypatch.setattr(processes.time, "time", lambda: now[0])

    class Control:
        class flower:
            class store:
                changed = staticmethod(lambda: 1.0)

    state = processes._keep_applied(Control, (-1.0, 0))  # type: ignore[arg-type]
    state = processes._keep_applied(Control, state)  # type: ignore[arg-type]
    assert len(applied) == 1
    now[0] += processes.EXPIRY_SECONDS + 1
    processes._keep_applied(Control, state)  # type: ignore[arg-type]
    assert len(applied) == 2
    certificate = credentials("car-001").certificate
    late = datetime.now(UTC) + timedelta(days=30)
    with pytest.raises(DataError, match="is not valid at"):
        check_certificate(certificate, owner().certificate, VEHICLE, now=late)


def test_two_processes_on_one_state_are_refused(fleet: Path, tmp_path: Path) -> None:
    """Each would answer a round once, and the server would have two sums over other vehicles."""
    folder = vehicle_folders(fleet)[0]
    vehicle_credentials = credentials(read_vehicle(folder).name)
    keys = tmp_path / "keys"
    write_secret(keys / KEY, private_bytes(vehicle_credentials.key))
    write_certificate(keys / CERTIFICATE, vehicle_credentials.certificate)
    write_certificate(keys / OWNER, vehicle_credentials.owner)
    words = ["deploy", "vehicle", str(folder), "--keys", str(keys)]
    # The same state in every working directory, unless another is named.
    for state, more in ((keys / "state", []), (tmp_path / "x", ["--state", str(tmp_path / "x")])):
        with holding(state, "vehicle", ""):
            done = CliRunner().invoke(app, [*words, *more])
        assert done.exit_code == 1
        assert f"A vehicle is running on {state} already" in str(done.exception)


def test_no_name_or_reason_forges_a_line_of_the_log() -> None:
    name = "a\n12:00:00 all well\x1b[2J"
    record = logging.LogRecord("", logging.INFO, "", 0, "vehicle %s enrolled", (name,), None)
    line = OneLineFormatter("%(message)s").format(record)
    assert line == r"vehicle a\n12:00:00 all well\x1b[2J enrolled"
