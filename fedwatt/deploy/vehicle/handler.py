"""A vehicle's request handler: the one function through which a server reaches it.

    bytes of a request → `checked_request` → plan, hours, answers so far → computation → `sealed`

A plan is verified once, when a server first sends it (`enrol`): the owner's signature, its
validity, the version range, and the vehicle's own acceptance file. All later requests name it by
its digest.
"""

import re
from dataclasses import dataclass, field, replace
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding

from fedwatt.deploy import log
from fedwatt.deploy.plan.certificates import (
    CERTIFICATE,
    KEY,
    OWNER,
    VEHICLE,
    check_certificate,
    read_certificate,
    read_vehicle_key,
)
from fedwatt.deploy.plan.plan import Plan, read_plan
from fedwatt.deploy.vehicle.acceptance import FILE, Acceptance, Hours
from fedwatt.deploy.vehicle.answers import OF_FLEET, Answers, Slot, request_digest
from fedwatt.deploy.vehicle.client_state import plan_folder
from fedwatt.deploy.vehicle.compute import AcceptedRequest, Computer
from fedwatt.deploy.vehicle.messages import (
    FAILED,
    MAP_KINDS,
    PLACE_KINDS,
    SUM_STEPS,
    NoResult,
    ReplyForm,
    away,
    checked_request,
    enrolment_form,
    failure,
    sealed,
    training_form,
    vector_form,
)
from fedwatt.deploy.vehicle.secure import SecureAggregation
from fedwatt.deploy.vehicle.worker import Computing, Worker
from fedwatt.deploy.wire import Content
from fedwatt.errors import DataError, FedwattError, RunError
from fedwatt.files import append_rows, read_rows, write_bytes
from fedwatt.models import get_model
from fedwatt.privacy.secure.keys import Identity, Trust, public_bytes
from fedwatt.privacy.secure_settings import SecureTerms
from fedwatt.runs.config import RunConfig
from fedwatt.runs.source import shares_elevation
from fedwatt.telemetry.store import read_vehicle

ACCEPTED = "accepted.jsonl"
"""In the vehicle's state: a line per accepted plan, with its ε and the certificates it revokes."""


@dataclass(frozen=True)
class Credentials:
    """A vehicle's key and certificate, and the owner's certificate."""

    key: ec.EllipticCurvePrivateKey = field(repr=False)
    certificate: x509.Certificate
    owner: x509.Certificate

    @classmethod
    def read(cls, keys: Path, vehicle: str) -> "Credentials":
        """Read a vehicle's folder of keys; RunError if they are not this vehicle's."""
        file = keys / KEY
        key = read_vehicle_key(file)
        if file.stat().st_mode & 0o077:
            raise RunError(f"Others can read {file}. 'chmod 600' it.")
        certificate = read_certificate(keys / CERTIFICATE)
        owner = read_certificate(keys / OWNER)
        try:
            name = check_certificate(certificate, owner, VEHICLE)
        except DataError as error:
            raise RunError(f"{keys / CERTIFICATE}: {error}.") from error
        if certificate.public_key() != key.public_key():
            raise RunError(f"{keys / CERTIFICATE} is not the certificate of {file}.")
        if name != vehicle:
            raise RunError(f"{keys} are the keys of '{name}', and the data is of '{vehicle}'.")
        return cls(key, certificate, owner)

    @property
    def identity(self) -> Identity:
        """Return the vehicle's identity in secure aggregation."""
        return Identity(self.key, self.certificate.public_bytes(Encoding.DER))

    def trust(self, plan: Plan) -> Trust:
        """Return the check of other vehicles' certificates under a plan."""

        def check(name: str, public: bytes, voucher: bytes) -> None:
            try:
                certificate = x509.load_der_x509_certificate(voucher)
            except ValueError as error:
                raise DataError(f"{name} has sent no certificate") from error
            owner = check_certificate(certificate, self.owner, VEHICLE, revoked=plan.revoked)
            key = certificate.public_key()
            fits = isinstance(key, ec.EllipticCurvePublicKey) and public_bytes(key) == public
            if owner != name or not fits:
                raise DataError(f"the key of {name} is not that of its certificate")

        return Trust(check)


class RequestHandler:
    """Handles the requests of a server."""

    def __init__(
        self,
        folder: Path,
        state: Path,
        credentials: Credentials,
        acceptance: Acceptance | None = None,
        computer: Computing | None = None,
    ) -> None:
        self.name = read_vehicle(folder).name
        self.folder = folder
        self.state = state
        self.credentials = credentials
        self.acceptance = acceptance or Acceptance()
        self.hours = Hours.read(self.acceptance.hours)
        self.computer = computer or Computer(folder, state)
        self.secrets = SecureAggregation(self.name, state, credentials.identity)
        self._plans: dict[str, tuple[Plan, Answers]] = {}

    def handle(self, body: bytes) -> bytes:
        """Return the reply to a request; one without a result where it is refused or fails."""
        kind = "?"
        try:
            kind, request = checked_request(body, self.acceptance.largest_message)
            return self._handle(kind, request)
        except NoResult as error:
            log.info("request '%s': %s", kind, error)
            return failure(error.status, **error.values)
        except FedwattError as error:
            log.error("request '%s': %s", kind, error)
        except Exception:
            log.exception("request '%s' failed", kind)
        return failure(FAILED)

    def _handle(self, kind: str, request: Content) -> bytes:
        if kind == "enrol":
            return self._enrol(request)
        plan, answers = self._plan(str(request.values["plan"]))
        if kind in SUM_STEPS:
            return self._step(kind, request, plan)
        if kind in MAP_KINDS:
            if not shares_elevation(plan.config):
                raise DataError("the plan learns no maps")
            self._refuse_outside_hours()
            return sealed(
                ReplyForm(kind), self.computer.compute(AcceptedRequest(plan.digest, kind, request))
            )
        if plan.config.secure.enabled:
            return self._contribute(kind, request, plan, answers)
        return self._reply(kind, request, plan, answers)

    def _enrol(self, request: Content) -> bytes:
        """Verify a plan, keep it, and tell whether there are enough windows for it."""
        signed = request.values["signed_plan"]
        assert isinstance(signed, bytes)
        plan = self._accepted(signed)
        self._plans.clear()  # what this one revokes counts for all
        write_bytes(plan_folder(self.state, plan.digest) / "plan.json", signed)
        reply = self.computer.compute(AcceptedRequest(plan.digest, "enrol", request))
        return sealed(enrolment_form(hidden=plan.config.secure.enabled), reply)

    def _accepted(self, signed: bytes) -> Plan:
        """Return a plan that is within the limits of the acceptance file as it is now.

        Certificates that any accepted plan revokes stay revoked: a server could go on with an
        older plan.
        """
        plan = read_plan(signed, self.credentials.owner)
        before = {row["plan"]: row for row in read_rows(self.state / ACCEPTED)}
        is_new = before.pop(plan.digest, None) is None
        spent = sum(float(row["epsilon"]) for row in before.values())
        self.acceptance.accept(plan, spent)
        revoked = plan.revoked | self.revoked()
        certificate = self.credentials.certificate
        check_certificate(certificate, self.credentials.owner, VEHICLE, revoked=revoked)
        if is_new:
            row = {"plan": plan.digest, "epsilon": str(plan.epsilon())}
            append_rows(self.state / ACCEPTED, [row | {"revoked": sorted(plan.revoked)}])
            for line in plan.lines()[:7]:
                log.info("accepted: %s", line)
        return replace(plan, revoked=revoked)

    def revoked(self) -> frozenset[int]:
        """Return the serial numbers that accepted plans revoke."""
        rows = read_rows(self.state / ACCEPTED)
        return frozenset().union(*(row["revoked"] for row in rows))

    def _plan(self, digest: str) -> tuple[Plan, Answers]:
        """Return an accepted plan that still holds; DataError for any other."""
        if not is_digest(digest):
            raise DataError("a request names no plan")
        if digest not in self._plans:
            folder = plan_folder(self.state, digest)
            try:
                signed = (folder / "plan.json").read_bytes()
            except OSError as error:
                raise DataError("a request names a plan that was not accepted here") from error
            self._plans = {digest: (self._accepted(signed), Answers(folder))}
        plan, answers = self._plans[digest]
        plan.refuse_expired()
        return plan, answers

    def _reply(self, kind: str, request: Content, plan: Plan, answers: Answers) -> bytes:
        """Return a plain reply: a new one for a new round, the same bytes for a repeated one."""
        if kind in PLACE_KINDS:
            raise DataError("sums over places need secure aggregation")
        slot = Slot.of(request)
        digest = request_digest(request, OF_FLEET)
        if not answers.repeated(slot, digest, plan.config):
            self._refuse_outside_hours()
            answers.add(slot, digest)
        elif reply := answers.stored_reply(slot):
            return reply
        result = self.computer.compute(AcceptedRequest(plan.digest, kind, request))
        reply = sealed(reply_form(kind, plan.config, request), result)
        answers.store_reply(slot, reply)
        return reply

    def _contribute(self, kind: str, request: Content, plan: Plan, answers: Answers) -> bytes:
        """Return a contribution under masks, once per round."""
        terms, vehicles = self.secrets.expected(request)
        slot = Slot.of(request)
        if answers.repeated(slot, terms.purpose, plan.config):
            raise DataError("a contribution is sent once; a failed sum is repeated as a new round")
        members = answers.check_set(vehicles) if kind in PLACE_KINDS else ""
        answers.add(slot, terms.purpose, vehicles=members)
        job = AcceptedRequest(plan.digest, kind, request, terms.called, terms.threshold)
        result = self.computer.compute(job)
        bits = result.values["bits"]
        assert isinstance(bits, int)
        masked = self.secrets.masked(request, result.arrays["words"], bits)
        return sealed(vector_form(terms.length * terms.bits // 8), masked)

    def _step(self, kind: str, request: Content, plan: Plan) -> bytes:
        """Return the reply to one of the four short messages of a secure aggregation."""
        trust = self.credentials.trust(plan)
        if kind == "sum-keys":
            self._refuse_outside_hours()
            reply = self.secrets.keys(request, lambda terms: self._check_terms(terms, plan))
        elif kind == "sum-shares":
            reply = self.secrets.shares(request, trust)
        elif kind == "sum-agree":
            reply = self.secrets.agreed(request, self._smallest_sum(plan))
        else:
            reply = self.secrets.revealed(request, trust)
        return sealed(ReplyForm(kind), reply)

    def _smallest_sum(self, plan: Plan) -> int:
        """Return the vehicles that a sum must be of, by the plan and by the acceptance file."""
        return max(plan.config.secure.smallest_sum, self.acceptance.smallest_sum)

    def _check_terms(self, terms: SecureTerms, plan: Plan) -> None:
        """Raise DataError for a sum that the plan or the acceptance file does not allow."""
        smallest = self._smallest_sum(plan)
        if not plan.config.secure.enabled:
            raise DataError("the plan has no secure aggregation")
        if terms.run != plan.digest or not is_digest(terms.purpose):
            raise DataError("a secure aggregation belongs to another plan, or to no request")
        if terms.threshold < smallest:
            raise DataError(
                f"a sum may be of {terms.threshold} vehicles, and {smallest} are needed"
            )
        if terms.length * terms.bits // 8 > self.acceptance.largest_message:
            raise DataError("a contribution would be longer than this vehicle sends")

    def _refuse_outside_hours(self) -> None:
        if seconds := self.hours.away_seconds():
            raise away(seconds)


def is_digest(text: str) -> bool:
    """Tell whether a text is a SHA-256 in hexadecimal digits."""
    return re.fullmatch("[0-9a-f]{64}", text) is not None


def reply_form(kind: str, config: RunConfig, request: Content) -> ReplyForm:
    """Return the declared form of a plain reply."""
    if kind != "train":
        return ReplyForm(kind)
    (choice,) = (c for c in config.methods if c.label == request.values["method"])
    data = config.data
    model = get_model(
        config.model.name,
        window=data.window,
        features=len(data.columns),
        hidden=config.model.hidden,
    )
    return training_form(choice.method, model, choice.training(config.training).precision)


def open_vehicle(
    folder: Path, state: Path, keys: Path, *, threads: int = 1, nice: int = 10
) -> RequestHandler:
    """Return the vehicle of a folder, with its keys and acceptance file, computing in a child."""
    acceptance = Acceptance.read(keys / FILE)
    credentials = Credentials.read(keys, read_vehicle(folder).name)
    worker = Worker(folder, state, acceptance, threads=threads, nice=nice)
    return RequestHandler(folder, state, credentials, acceptance, worker)
