"""Cost of secure aggregation beside plain rounds: bytes and seconds, by the size of the fleet.

    python benchmarks/secure.py              the table of docs/scale.md

A round is a training and an evaluation of its model. Under masks both are secure sums with signed
keys; a fifth of the vehicles drops out of each, at all its stages. Writes results/secure.json and
the table of docs/scale.md. Seconds are of one core (process time), so a busy machine lengthens
them little. About five minutes.
"""

import json
from argparse import ArgumentParser
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric import ec, ed25519

from benchmarks.marked import write_blocks
from fedwatt.deploy.plan.certificates import VEHICLE, Owner, owner_certificate
from fedwatt.deploy.plan.plan import Plan
from fedwatt.deploy.vehicle.handler import Credentials
from fedwatt.federation.evaluate import EVALUATION
from fedwatt.methods import get
from fedwatt.metrics.sums import VectorLayout, reduced, unpacked
from fedwatt.models import get_model
from fedwatt.privacy.secure import server
from fedwatt.privacy.secure.compose import reply_layout
from fedwatt.privacy.secure.keys import CURVE, Trust
from fedwatt.privacy.secure.messages import to_plain
from fedwatt.privacy.secure.vehicle import advertise, agree, mask_input, reveal, share_keys
from fedwatt.privacy.secure_settings import SecureSettings, SecureTerms
from fedwatt.runs.config import RunConfig

ROOT = Path(__file__).parents[1]
FLEETS = (10, 100, 1000)
STAGES = ("keys", "shares", "vector", "agreement")
"""After which vehicles drop out, in turn."""


def size(message: object) -> int:
    """Bytes of the values of a message, without the transport's own."""
    total = 0
    for value in to_plain(message).values():
        for part in value if isinstance(value, list) else [value]:
            total += len(part) if isinstance(part, bytes | str) else 8
    return total


class Exchange:
    """One secure sum; bytes and seconds of one vehicle, and seconds of the server."""

    def __init__(self, vehicles: int, layout: VectorLayout) -> None:
        self.terms = SecureTerms(
            run="cost",
            number=0,
            called=vehicles,
            threshold=SecureSettings().survivors_needed(vehicles),
            length=layout.length,
            bits=layout.bits,
        )
        self.names = [f"vehicle-{k:04d}" for k in range(vehicles)]
        self.one = self.names[-1]
        signing = ed25519.Ed25519PrivateKey.generate()
        owner = Owner(signing, owner_certificate(signing))
        credentials = {}
        for name in self.names:
            key = ec.generate_private_key(CURVE)
            certificate = owner.issue(name, VEHICLE, key.public_key(), 1)
            credentials[name] = Credentials(key, certificate, owner.certificate)
        now = datetime.now(UTC)
        plan = Plan(b"", RunConfig(), frozenset(), (now, now))
        self.trust = credentials[self.one].trust(plan)
        self.who = {name: credential.identity for name, credential in credentials.items()}
        gone = self.names[: vehicles // 5]
        self.last = {name: STAGES[k % len(STAGES)] for k, name in enumerate(gone)}
        self.up, self.down, self.on_board, self.on_server = 0, size(self.terms), 0.0, 0.0
        self.states: dict[str, Any] = {}

    def ask(
        self, stage: str, messages: dict[str, Any], answer: Callable[[str, Any], Any]
    ) -> dict[str, Any]:
        """Return the answers of the vehicles that have not dropped out."""
        arrived = {}
        for name, message in messages.items():
            if name in self.last and STAGES.index(self.last[name]) < STAGES.index(stage):
                continue
            begin = process_time()
            self.states[name], arrived[name] = answer(name, message)
            if name == self.one:
                self.on_board += process_time() - begin
                self.up += size(arrived[name])
                self.down += size(message) if message is not None else 0
        return arrived

    def serve(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Run a step of the server and add its processor time."""
        begin = process_time()
        answer = function(*arguments)
        self.on_server += process_time() - begin
        return answer

    def trusted(self, name: str) -> Trust | None:
        """Return the certificates that a vehicle checks; only the timed vehicle checks any."""
        return self.trust if name == self.one else None

    def run(self) -> int:
        """Run all stages, check the total and return the number of survivors."""
        terms = self.terms
        states = self.states
        bits = terms.bits
        length = terms.length
        words = {
            name: unpacked(k.to_bytes(bits // 8, "little") * length, bits)
            for k, name in enumerate(self.names, start=1)
        }
        adverts = self.ask(
            "keys",
            dict.fromkeys(self.names),
            lambda name, _: advertise(terms, name, identity=self.who[name]),
        )
        keyed = self.serve(server.make_roster, terms, adverts, {})
        rosters = self.serve(lambda: {name: keyed.roster(name) for name in keyed.graph.names})
        shares = self.ask(
            "shares", rosters, lambda n, m: share_keys(states[n], m, trust=self.trusted(n))
        )
        routed, inboxes = self.serve(server.route, keyed, shares, {})
        masked = self.ask("vector", inboxes, lambda n, m: mask_input(states[n], m, words[n]))
        summed, survivors = self.serve(collected, routed, masked)
        agreed = self.ask(
            "agreement",
            dict.fromkeys(summed.survivors, survivors),
            lambda n, m: agree(states[n], m, identity=self.who[n]),
        )
        passed = self.serve(server.pass_on, summed, agreed, {})
        staying = {name: received for name, received in passed.items() if name not in self.last}
        revealed = self.ask(
            "agreement", staying, lambda n, m: reveal(states[n], m, trust=self.trusted(n))
        )
        total = self.serve(server.unmask, summed, revealed, {})
        added = np.sum([words[name] for name in summed.survivors], axis=0, dtype=total.dtype)
        assert (total == reduced(added, bits)).all()
        return len(summed.survivors)


def measure(vehicles: int) -> dict[str, Any]:
    """Measure a round and an evaluation of the default model; one in five drops out."""
    model = get_model("mlp", window=60, features=8)
    layout = reply_layout(get("fedavg"), model, SecureSettings(), vehicles=vehicles)
    train = Exchange(vehicles, layout)
    evaluate = Exchange(vehicles, VectorLayout(EVALUATION, vehicles=vehicles))
    survivors = train.run()
    evaluate.run()
    weights = 4 * model.layout.size
    plain = 2 * weights + weights + 8 + 2 * 6 * 8
    masked = 2 * weights + train.up + train.down + evaluate.up + evaluate.down
    return {
        "vehicles": vehicles,
        "survivors": survivors,
        "plain_bytes": plain,
        "masked_bytes": masked,
        "vehicle_seconds": round(train.on_board + evaluate.on_board, 4),
        "server_seconds": round(train.on_server + evaluate.on_server, 4),
    }


def collected(routed: server.Routed, masked: Mapping[str, Any]) -> Any:
    """Add up the vectors of all vehicles."""
    adding = server.Adding(routed, {})
    for name, sent in masked.items():
        adding.add(name, sent)
    return adding.collected()


def table(rows: list[dict[str, Any]]) -> str:
    """Return the table of docs/scale.md."""
    lines = [
        "| vehicles | survive | plain, kB | secure, kB | vehicle, s | server, s |",
        "|--:|--:|--:|--:|--:|--:|",
    ]
    for row in rows:
        lines.append(
            f"| {row['vehicles']:,} | {row['survivors']:,} | {row['plain_bytes'] / 1000:.0f} | "
            f"{row['masked_bytes'] / 1000:.0f} | {row['vehicle_seconds']:.2f} | "
            f"{row['server_seconds']:.2f} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Measure all fleets, and write the page."""
    ArgumentParser(description="Measure secure aggregation and record it.").parse_args()
    rows = [measure(vehicles) for vehicles in FLEETS]
    (ROOT / "results" / "secure.json").write_text(json.dumps(rows, indent=2) + "\n")
    write_blocks(ROOT / "docs" / "scale.md", {"costs": table(rows)})
    print(table(rows))


if __name__ == "__main__":
    main()
