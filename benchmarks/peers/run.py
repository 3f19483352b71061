"""Train the recipe in other frameworks: results/peers.json and a table of docs/performance.md.

    python -m benchmarks.peers.run FOLDER [--only pfl fedjax] [--turns 3] [--rounds 5]
    python -m benchmarks.peers.run --write        the page from what was measured

Makes an environment for each framework below FOLDER with pip, versions pinned, unless it is there
(about 6 GB in all), then trains the recipe of `task.py` with all of them in turns: a process that
warms up in one round and measures the others, with one thread and with as many as there are cores.
The better of the two counts and is named. A framework that does not install, or does not run, is
recorded with the reason.
"""

import argparse
import json
import os
import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

from benchmarks.machine import machine
from benchmarks.marked import write_blocks

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
RESULTS = ROOT / "results" / "peers.json"
PAGE = ROOT / "docs" / "performance.md"
TORCH: Final = "torch==2.13.0"
FEDJAX: Final = (
    "fedjax==0.0.17", "jax==0.4.25", "jaxlib==0.4.25", "numpy==1.26.4", "scipy==1.12.0",
    "optax==0.2.2", "chex==0.1.86", "dm-haiku==0.0.12", "ml_dtypes==0.3.2",
)  # fmt: skip
"""The last JAX that has what fedjax calls, and what fits it."""


@dataclass(frozen=True)
class Peer:
    """A framework that trains the recipe."""

    title: str
    packages: tuple[str, ...] = ()
    """None: the environment of fedwatt itself."""


PEERS: Final = {
    "fedwatt": Peer("fedwatt"),
    "loop": Peer("plain PyTorch loop"),
    "jax": Peer("plain JAX, vehicles side by side", ("jax==0.10.2",)),
    "fedjax": Peer("fedjax", FEDJAX),
    "pfl": Peer("pfl-research", ("pfl==0.6.0", "dp-accounting==0.4.4", TORCH)),
    "flower": Peer("Flower, Ray simulation", ("flwr[simulation]==1.41.0", TORCH)),
}
"""Name of a function in `frameworks.py` → how it is measured."""


def python_of(folder: Path, name: str, peer: Peer) -> str:
    """Return the interpreter of a peer's environment, which is made where there is none yet."""
    if not peer.packages:
        return sys.executable
    place = folder / name
    python = place / "bin" / "python"
    if not (place / "complete").exists():
        venv.create(place, with_pip=True, clear=True)
        command = [str(python), "-m", "pip", "install", "-q", "numpy<2.4", *peer.packages]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(_reason(done.stderr))
        (place / "complete").touch()
    return str(python)


def trained(python: str, name: str, threads: int, rounds: int) -> dict[str, Any]:
    """Return version and seconds of one process."""
    count = str(threads)
    environment = os.environ | {
        "OMP_NUM_THREADS": count,
        "MKL_NUM_THREADS": count,
        "OPENBLAS_NUM_THREADS": count,
        "NPROC": count,  # XLA's threads
        "JAX_PLATFORMS": "cpu",
        "RAY_USAGE_STATS_ENABLED": "0",
        "FLWR_TELEMETRY_ENABLED": "0",
        "PYTHONPATH": str(HERE),
    }
    command = [python, str(HERE / "frameworks.py"), name, str(rounds)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=environment, timeout=900
    )
    if done.returncode:
        raise RuntimeError(_reason(done.stderr))
    timing: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return timing


def _reason(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:200] if lines else "no message"


def measure(folder: Path, names: list[str], turns: int, rounds: int) -> dict[str, Any]:
    """Measure every peer with every number of threads, in turns."""
    folder.mkdir(parents=True, exist_ok=True)
    record: dict[str, Any] = {"machine": machine(), "load_before": os.getloadavg()[0], "peers": {}}
    pythons = {}
    for name in names:
        try:
            pythons[name] = python_of(folder, name, PEERS[name])
        except RuntimeError as error:
            record["peers"][name] = {"fault": f"does not install: {error}"}
    threads = sorted({1, os.cpu_count() or 1})
    for _ in range(turns):
        for name, python in pythons.items():
            timing = record["peers"].setdefault(name, {"seconds": {str(t): [] for t in threads}})
            for count in threads:
                try:
                    fresh = trained(python, name, count, rounds)
                except (RuntimeError, subprocess.TimeoutExpired) as error:
                    timing["fault"] = f"does not run: {error}"
                    break
                timing["version"] = fresh["version"]
                timing["seconds"][str(count)] += fresh["seconds"]
                timing.pop("fault", None)  # what failed in one turn may run in the next
            print(name, timing.get("fault") or timing["seconds"], flush=True)
    return record


def best(timing: dict[str, Any]) -> tuple[str, float]:
    """Return (threads, median seconds) of the better setting."""
    medians = {count: median(seconds) for count, seconds in timing["seconds"].items() if seconds}
    return min(medians.items(), key=lambda pair: pair[1])


def page(record: dict[str, Any]) -> str:
    """Return the table, quickest first."""
    peers = record["peers"]
    timed = {name: best(timing) for name, timing in peers.items() if "fault" not in timing}
    ours = timed["fedwatt"][1]
    lines = ["| | version | threads | a round | fedwatt = 1 |", "|---|---|--:|--:|--:|"]
    for name, (threads, seconds) in sorted(timed.items(), key=lambda pair: pair[1][1]):
        lines.append(
            f"| {PEERS[name].title} | {peers[name]['version']} | {threads} | "
            f"{1000 * seconds:,.0f} ms | {seconds / ours:,.1f} |"
        )
    faults = [
        f"{PEERS[n].title} {timing['fault']}" for n, timing in peers.items() if "fault" in timing
    ]
    computer = record["machine"]
    summary = (
        f"{computer['cores']} cores ({computer['processor']}), Python {computer['python']}; "
        "medians over turns, "
        f"the better of 1 and {computer['cores']} threads (workers of Flower have one each, on all "
        f"cores); load before: {record['load_before']:.1f}."
    )
    return "\n".join(lines) + f"\n\n{summary}" + "".join(f" {fault}." for fault in faults)


def main() -> None:
    """Measure, and write the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, nargs="?", help="for the environments")
    parser.add_argument("--only", nargs="+", choices=PEERS, default=list(PEERS))
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--write", action="store_true", help="only write the page")
    options = parser.parse_args()
    if not options.write:
        if options.folder is None:
            parser.error("say where environments may be made")
        record = measure(options.folder, options.only, options.turns, options.rounds)
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    if options.write or options.out == RESULTS:
        write_blocks(PAGE, {"peers": page(json.loads(RESULTS.read_text(encoding="utf-8")))})


if __name__ == "__main__":
    main()
