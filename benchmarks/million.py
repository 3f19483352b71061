"""A million vehicles, trained: results/million.json and the table of docs/scale.md.

    python benchmarks/million.py [--device cuda] [--out FILE]   measure, then write the page's table
    python benchmarks/million.py --write                        the page from what was measured

1,000 participants a round out of 1,000,000 vehicles that are made when they take part, one epoch of
about 30 steps each; every row is a process of its own. "Start" is from the beginning of the process
to the errors of the initial model. Memory is the most that the process, and those that make
vehicles for it, ever held. A measurement on another machine or device is added to the file.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any, Final

BEGUN: Final = time.perf_counter()

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "results" / "million.json"
PAGE = ROOT / "docs" / "scale.md"
VEHICLES = 1_000_000
PARTICIPANTS = 1_000
JUDGED = 200
TRIPS = 6
METHODS: Final = ("fedavg", "fo-ri-fedavg")


def measure_row(name: str, device: str, rounds: int) -> dict[str, Any]:
    """Return rounds of one method, measured in this process."""
    import torch

    from benchmarks.machine import machine
    from fedwatt.federation import Federation, Training
    from fedwatt.methods import get
    from fedwatt.synthetic.fleet import TownVehicles

    fleet = TownVehicles(VEHICLES, 0, TRIPS).lazy_fleet()
    training = Training(
        rounds=10**6,
        participation=PARTICIPANTS / VEHICLES,
        evaluate_vehicles=JUDGED,
        learning_rate=0.01,
    )
    method = get(name)
    federation = Federation(fleet, training=training, device=device)
    state, record = federation.start(method)
    record_: dict[str, Any] = {"start_s": time.perf_counter() - BEGUN}
    seen: list[dict[str, Any]] = []
    for _ in range(rounds + 2):  # the first two make, compile or record what the others find
        begin = time.perf_counter()
        busy = _busy(fleet)
        state, record = federation.advance(method, state)
        if device == "cuda":
            torch.cuda.synchronize()
        parts = {
            name: part_seconds for name, part_seconds in record.seconds.items() if part_seconds
        }
        took = {"seconds": time.perf_counter() - begin, "cpu_s": _busy(fleet) - busy}
        seen.append(took | {"parts": parts})
    last = record.rounds[-1]
    keys = ("test_rmse", "test_rmse_margin", "participants")
    peaks = [_peak_mb(os.getpid()), *(_peak_mb(p.pid) for p in fleet.clients.workers.processes)]
    return record_ | {
        "method": name,
        "device": torch.cuda.get_device_name() if device == "cuda" else "cpu",
        "machine": machine(),
        "load_before": os.getloadavg()[0],
        "seconds": median(part_seconds["seconds"] for part_seconds in seen[2:]),
        "cpu_s": median(part_seconds["cpu_s"] for part_seconds in seen[2:]),
        "rounds": seen,
        "steps": last["steps"] / last["replies"],
        "peak_mb": sum(peaks),
        **{key: last[key] for key in keys},
    }


def _busy(fleet: Any) -> float:
    """Processor time of this process and of those that make vehicles, seconds."""
    pids = [os.getpid(), *(process.pid for process in fleet.clients.workers.processes)]
    return sum(_ticks(pid) for pid in pids) / os.sysconf("SC_CLK_TCK")


def _ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def _peak_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))


def measure(device: str, rounds: int, out: Path) -> None:
    """All rows, each in a process of its own, added to the file `out`."""
    for name in METHODS:
        command = [sys.executable, __file__, "--one", name, "--device", device]
        done = subprocess.run(
            [*command, "--rounds", str(rounds)],
            check=True,
            stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
        )
        fresh = json.loads(done.stdout.splitlines()[-1])
        recorded = json.loads(out.read_text(encoding="utf-8")) if out.exists() else []
        remaining = [row_ for row_ in recorded if _key(row_) != _key(fresh)]
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps([*remaining, fresh], indent=1) + "\n", encoding="utf-8")
        print(f"{name}: {fresh['seconds']:.2f} s a round", flush=True)


def _key(row: dict[str, Any]) -> tuple[str, ...]:
    return row["machine"]["processor"], *(row[n] for n in ("device", "method"))


def page(rows: list[dict[str, Any]]) -> str:
    """Return the table, and a line for each machine."""
    from fedwatt.report.style import name_of

    lines = [
        "| on | method | start | per round | memory |",
        "|---|---|--:|--:|--:|",
    ]
    notes = []
    for row in rows:
        computer = row["machine"]
        gpu = row["device"]
        where = f"{computer['cores']} cores" if gpu == "cpu" else gpu.removeprefix("NVIDIA ")
        lines.append(
            f"| {where} | {name_of(row['method'])} | {row['start_s']:.1f} s | "
            f"{row['seconds']:.2f} s | {row['peak_mb'] / 1024:.1f} GB |"
        )
        note = f"{where}: {computer['processor']}, PyTorch {computer['torch']}"
        if note not in notes:
            notes.append(note)
    steps = [row["steps"] for row in rows]
    summary = (
        f"{VEHICLES:,} vehicles, {PARTICIPANTS:,} participants per round with "
        f"{' to '.join(dict.fromkeys(f'{n:.0f}' for n in (min(steps), max(steps))))} steps "
        f"on average, {JUDGED} vehicles evaluated. Medians of rounds; {'; '.join(notes)}."
    )
    return "\n".join(lines) + f"\n\n{summary}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--one", metavar="METHOD")
    parser.add_argument("--write", action="store_true", help="only write the page")
    options = parser.parse_args()
    if options.one:
        record = measure_row(options.one, options.device, options.rounds)
        print(json.dumps(record))
        return
    if not options.write:
        measure(options.device, options.rounds, options.out)
    if options.write or options.out == RESULTS:
        from benchmarks.marked import write_blocks

        rows = json.loads(RESULTS.read_text(encoding="utf-8"))
        write_blocks(PAGE, {"million": page(rows)})


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    main()
