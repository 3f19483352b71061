"""Write the tables of docs/performance.md from results/performance_*.json.

python -m benchmarks.performance_tables
"""

import json
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from benchmarks.gpu import SHORT
from benchmarks.marked import write_blocks
from fedwatt.report.style import name_of

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "performance.md"
CONSTRAINTS = ROOT / "constraints.txt"
Found = dict[str, Any]

WAYS = {
    "plain loop": "plain PyTorch client loop, 1 thread",
    "fedavg, 1 thread": "fedwatt, FedAvg, 1 thread",
}


def table(head: str, rows: Iterable[str]) -> str:
    """Return a Markdown table; cells are separated by bars, and all but the first are numbers."""
    lines = [head.replace("|", " | "), "---" + "|--:" * head.count("|")]
    lines += [row.replace("|", " | ") for row in rows]
    return "\n".join(f"| {line} |" if "--:" not in line else f"|{line}|" for line in lines)


def on(machine: Found, load: float | None = None) -> str:
    return (
        f"{machine['processor']}, {machine['cores']} cores, "
        f"{machine['threads']} thread{'' if machine['threads'] == 1 else 's'}, "
        f"Python {machine['python']}, torch {machine['torch']}"
        + ("" if load is None else f"; load {load:.1f} before the run")
    )


def on_gpu(record: Found) -> str:
    """Return the GPU and torch of a record, and the torch that is pinned now if it is another."""
    (pinned,) = re.findall(r"^torch==(\S+)$", CONSTRAINTS.read_text(encoding="utf-8"), re.MULTILINE)
    ran = record["torch"]
    other = f" (constraints.txt has {pinned})"
    return f"{record['device']}, torch {ran}{'' if ran.split('+')[0] == pinned else other}"


def engine(record: Found) -> dict[str, str]:
    mlp = record["mlp"]
    rows = [
        f"{WAYS.get(way) or 'fedwatt, ' + name_of(way)}|{seconds * 1000:.0f}|"
        f"{mlp['times_the_floor'][way]:.1f}|{mlp['times_fedavg'][way]:.2f}"
        for way, seconds in mlp["seconds_a_round"].items()
    ]
    steps = record["recurrent"]["seconds_a_client_step"]
    return {
        "engine": table("engine|ms per round|times the floor|times FedAvg's time", rows)
        + f"\n\nFloor: {mlp['floor_s'] * 1000:.0f} ms. "
        f"{on(mlp['machine'], record['load_before'])}.",
        "recurrent": " ".join(
            f"{name}: {step_seconds['fedavg'] * 1e3:.2f} ms per step of one vehicle, with torch.nn "
            f"in a plain loop {step_seconds['plain loop'] * 1e3:.2f} ms."
            for name, step_seconds in steps.items()
        ),
    }


def probe(record: Found) -> dict[str, str]:
    probe = record["probe"]
    rounds = record["rounds"]
    share = table(
        "windows of a vehicle|FedAvg, ms per round|three probes, ms|added at R = 5",
        (
            f"{share_row['windows']:,}|{share_row['seconds_a_round']['fedavg'] * 1e3:.0f}|"
            f"{share_row['probe_s'] * 1e3:.0f}|{share_row['amortised_probe_share_R5']:.2%}"
            for share_row in rounds
        ),
    )
    return {
        "probe": f"{probe['passes']:,} forward passes take "
        f"{probe['seconds']['naive'] * 1e3:.0f} ms, "
        f"the probe {probe['seconds']['probe'] * 1e3:.1f} ms: **{probe['times_faster']:.1f} times "
        f"faster**, losses equal to {probe['largest_difference']:.0e}. "
        f"{on(probe['machine'], record['load_before'])}.\n\n{share}",
    }


def gpu(record: Found) -> dict[str, str]:
    """Return the table of the MLP's stacks beside a plain loop."""
    head = (
        "stack|vehicles|ms per step|client-steps per second|times the loop|"
        f"in a round of {SHORT} steps"
    )
    plain = record["plain_client_step_s"]
    rows = [f"plain loop, float32|1|{plain * 1e3:.3f}||1|1"]
    rows += [
        f"{name_of(stack['method'])}, float32|{stack['rows']}|{stack['step_s'] * 1e3:.3f}|"
        f"{stack['client_steps_per_s']:,.0f}|{stack['times_plain_loop']:,.0f}|"
        f"{SHORT * stack['rows'] * plain / stack['round_s']:,.0f}"
        for stack in record["stacks"]
    ]
    return {"gpu": f"{table(head, rows)}\n\n{on_gpu(record)}; CUDA {record['cuda']}."}


def agreement(record: Found) -> dict[str, str]:
    rows = record["largest_difference_over_largest_weight"]
    worst = {p: max(rows, key=lambda row: row[p]) for p in ("float64", "float32")}
    most = ", ".join(f"{row[p]:.0e} in {p} ({name_of(row['method'])})" for p, row in worst.items())
    return {
        "agreement": "Largest difference of any weight between the two engines after three rounds, "
        f"relative to the largest weight: {most}."
    }


def memory(record: Found) -> dict[str, str]:
    windows = sum(record["windows"].values())
    return {
        "memory": f"Two rounds of FO-RI-FedAvg on {record['vehicles']} vehicles of VED "
        f"({windows:,} windows), all of them training, with every evaluation: "
        f"**{record['peak_mb']:.0f} MB** at the highest, the whole process. "
        f"{on(record['machine'])}."
    }


FILES: dict[str, Callable[[Found], dict[str, str]]] = {
    "engine": engine,
    "probe": probe,
    "gpu": gpu,
    "agreement": agreement,
    "memory": memory,
}


def blocks() -> dict[str, str]:
    """Markdown by the name of its place on the page, of all records that are there."""
    made: dict[str, str] = {}
    for file, tables in FILES.items():
        path = ROOT / "results" / f"performance_{file}.json"
        made |= tables(json.loads(path.read_text(encoding="utf-8")))
    return made


def main() -> None:
    write_blocks(PAGE, blocks())


if __name__ == "__main__":
    main()
