"""The recipe in other frameworks: results/peers.json and its table in docs/performance.md.

    python benchmarks/peers/run.py FOLDER [--only pfl fedjax] [--turns 3] [--rounds 5]
    python benchmarks/peers/run.py --write        the page from what was measured

Makes an environment for each framework below FOLDER with pip, versions pinned, unless it is there
(about 8 GB in all), then trains the recipe of `task.py` with all of them in turns: a process that
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

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks.machine import machine  # noqa: E402
from benchmarks.marked import write_blocks  # noqa: E402

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
    """A way to train the recipe."""

    title: str
    script: str
    packages: tuple[str, ...] = ()
    """None: the environment of fedwatt itself."""
    arguments: tuple[str, ...] = ()
    environment: str = ""
    """Whose environment it shares, where that has another name."""
    once: bool = False
    """Whether one round in one process is measured, with as many threads as there are cores."""


PEERS: Final = {
    "fedwatt": Peer("fedwatt", "fedwatt_round.py"),
    "loop": Peer("plain PyTorch loop", "plain_round.py"),
    "jax": Peer("plain JAX, a loop of vehicles", "jax_round.py", ("jax==0.10.2",)),
    "jax-vmap": Peer(
        "plain JAX, vehicles side by side", "jax_round.py", ("jax==0.10.2",), ("vmap",), "jax"
    ),
    "fedjax": Peer("fedjax", "fedjax_round.py", FEDJAX),
    "pfl": Peer("pfl-research", "pfl_round.py", ("pfl==0.6.0", "dp-accounting==0.4.4", TORCH)),
    "fedlab": Peer("FedLab", "fedlab_round.py", ("fedlab==1.3.0", TORCH)),
    "flower": Peer(
        "Flower, Ray simulation", "flower_round.py", ("flwr[simulation]==1.41.0", TORCH)
    ),
    "nvflare": Peer(
        "NVFlare's simulator", "nvflare_round.py", ("nvflare==2.9.0", TORCH), once=True
    ),
}


def python_of(folder: Path, name: str, peer: Peer) -> str:
    """The interpreter of a peer's environment, which is made where it is not there yet."""
    if not peer.packages:
        return sys.executable
    place = folder / (peer.environment or name)
    python = place / "bin" / "python"
    if not (place / "complete").exists():
        venv.create(place, with_pip=True, clear=True)
        command = [str(python), "-m", "pip", "install", "-q", "numpy<2.4", *peer.packages]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(_reason(done.stderr))
        (place / "complete").touch()
    return str(python)


def trained(python: str, peer: Peer, threads: int, rounds: int) -> dict[str, Any]:
    """Version and seconds of one process."""
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
    command = [python, str(HERE / peer.script), str(rounds), *peer.arguments]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=environment, timeout=900
    )
    if done.returncode:
        raise RuntimeError(_reason(done.stderr))
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def _reason(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:200] if lines else "no message"


def measure(folder: Path, names: list[str], turns: int, rounds: int) -> dict[str, Any]:
    """Every peer with every number of threads, in turns."""
    folder.mkdir(parents=True, exist_ok=True)
    found: dict[str, Any] = {"machine": machine(), "load_before": os.getloadavg()[0], "peers": {}}
    pythons = {}
    for name in names:
        try:
            pythons[name] = python_of(folder, name, PEERS[name])
        except RuntimeError as error:
            found["peers"][name] = {"fault": f"does not install: {error}"}
    threads = sorted({1, os.cpu_count() or 1})
    for _ in range(turns):
        for name, python in pythons.items():
            own = found["peers"].setdefault(name, {"seconds": {str(t): [] for t in threads}})
            once = PEERS[name].once
            if once and own["seconds"][str(threads[-1])]:
                continue
            for count in threads[-1:] if once else threads:
                try:
                    one = trained(python, PEERS[name], count, 1 if once else rounds)
                except (RuntimeError, subprocess.TimeoutExpired) as error:
                    own["fault"] = f"does not run: {error}"
                    break
                own["version"] = one["version"]
                own["seconds"][str(count)] += one["seconds"]
                own.pop("fault", None)  # what failed in one turn may run in the next
            print(name, own.get("fault") or own["seconds"], flush=True)
    return found


def best(own: dict[str, Any]) -> tuple[str, float]:
    """(threads, median seconds) of the better setting."""
    medians = {count: median(seconds) for count, seconds in own["seconds"].items() if seconds}
    return min(medians.items(), key=lambda pair: pair[1])


def page(found: dict[str, Any]) -> str:
    """The table, quickest first."""
    peers = found["peers"]
    timed = {name: best(own) for name, own in peers.items() if "fault" not in own}
    ours = timed["fedwatt"][1]
    lines = ["| | version | threads | a round | fedwatt = 1 |", "|---|---|--:|--:|--:|"]
    for name, (threads, seconds) in sorted(timed.items(), key=lambda pair: pair[1][1]):
        lines.append(
            f"| {PEERS[name].title} | {peers[name]['version']} | {threads} | "
            f"{1000 * seconds:,.0f} ms | {seconds / ours:,.1f} |"
        )
    faults = [f"{PEERS[n].title} {own['fault']}" for n, own in peers.items() if "fault" in own]
    own = found["machine"]
    about = (
        f"{own['cores']} cores ({own['processor']}), Python {own['python']}; medians over turns, "
        f"the better of 1 and {own['cores']} threads (workers of Flower have one each, on all "
        f"cores); load before: {found['load_before']:.1f}."
    )
    return "\n".join(lines) + f"\n\n{about}" + "".join(f" {fault}." for fault in faults)


def main() -> None:
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
        found = measure(options.folder, options.only, options.turns, options.rounds)
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    if options.write or options.out == RESULTS:
        write_blocks(PAGE, {"peers": page(json.loads(RESULTS.read_text(encoding="utf-8")))})


if __name__ == "__main__":
    main()
