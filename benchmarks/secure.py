"""What secure aggregation costs: bytes and seconds of one vehicle and of the server, by fleet size.

    python benchmarks/secure.py

writes results/secure.json and the table of docs/privacy.md. Seconds are of one core (process time),
so a busy machine lengthens them little. About two minutes.
"""

import json
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np

from benchmarks.marked import write_blocks
from fedwatt.methods import get
from fedwatt.models import get_model
from fedwatt.privacy.secure import server
from fedwatt.privacy.secure.compose import reply_layout
from fedwatt.privacy.secure.plain import to_plain
from fedwatt.privacy.secure.vehicle import advertise, mask_input, reveal, share_keys
from fedwatt.privacy.secure_settings import SecureSettings

ROOT = Path(__file__).parents[1]
FLEETS = (3, 10, 30, 100, 300)
DROPPED = 0.1


def size(message: object) -> int:
    """Bytes of the values of a message, without the transport's own."""
    total = 0
    for value in to_plain(message).values():
        for part in value if isinstance(value, list) else [value]:
            total += len(part) if isinstance(part, bytes | str) else 8
    return total


def measure(vehicles: int) -> dict[str, Any]:
    """One exchange from which a tenth of the vehicles drops out after sharing its keys."""
    model = get_model("mlp", window=60, features=8)
    layout = reply_layout(get("fedavg"), model, SecureSettings(), vehicles=vehicles)
    terms = SecureSettings().terms(run="cost", number=0, called=vehicles, length=layout.length)
    rng = np.random.default_rng(0)
    names = [f"vehicle-{k:04d}" for k in range(vehicles)]
    words = {name: np.frombuffer(rng.bytes(8 * layout.length), "<u8") for name in names}
    dropped = set(names[: int(DROPPED * vehicles)])
    one = names[-1]
    up, down, on_board, on_server = 0, size(terms), 0.0, 0.0

    def timed(function: Any, *arguments: Any, mine: bool = False, **named: Any) -> Any:
        nonlocal on_board, on_server
        begin = process_time()
        result = function(*arguments, **named)
        spent = process_time() - begin
        if function.__module__.endswith("server"):
            on_server += spent
        elif mine:
            on_board += spent
        return result

    states, sent = {}, {}
    for name in names:
        states[name], sent[name] = timed(advertise, terms, name, mine=name == one)
    up += size(sent[one])
    roster, _ = timed(server.make_roster, terms, sent)
    down += size(roster)
    for name in names:
        states[name], sent[name] = timed(share_keys, states[name], roster, mine=name == one)
    up += size(sent[one])
    routed, inboxes, _ = timed(server.route, terms, roster, sent)
    down += size(inboxes[one])
    sent = {}
    for name in names:
        if name not in dropped:
            states[name], sent[name] = timed(
                mask_input, states[name], inboxes[name], words[name], mine=name == one
            )
    up += size(sent[one])
    summed, survivors, _ = timed(server.collect, routed, sent)
    down += size(survivors)
    revealed = {}
    for name in survivors.vehicles:
        states[name], revealed[name] = timed(reveal, states[name], survivors, mine=name == one)
    up += size(revealed[one])
    total, _ = timed(server.unmask, summed, revealed)
    assert (total == sum(words[name] for name in names if name not in dropped)).all()
    return {
        "vehicles": vehicles,
        "dropped": len(dropped),
        "parameters": model.layout.size,
        "plain_bytes_up": 4 * model.layout.size + 8,
        "bytes_up": up,
        "bytes_down": down,
        "vehicle_seconds": round(on_board, 4),
        "server_seconds": round(on_server, 4),
    }


def table(rows: list[dict[str, Any]]) -> str:
    """The table of docs/privacy.md."""
    lines = [
        "| vehicles | of which drop out | a vehicle sends, kB | and receives besides the model, kB "
        "| seconds on board | seconds on the server |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        lines.append(
            f"| {row['vehicles']} | {row['dropped']} | {row['bytes_up'] / 1000:.0f} | "
            f"{row['bytes_down'] / 1000:.1f} | {row['vehicle_seconds']:.3f} | "
            f"{row['server_seconds']:.2f} |"
        )
    return "\n".join(lines)


def main() -> None:
    rows = [measure(vehicles) for vehicles in FLEETS]
    (ROOT / "results" / "secure.json").write_text(json.dumps(rows, indent=2) + "\n")
    write_blocks(ROOT / "docs" / "privacy.md", {"costs": table(rows)})
    print(table(rows))


if __name__ == "__main__":
    main()
