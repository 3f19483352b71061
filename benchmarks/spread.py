"""One training over workers: results/spread.json and its table in docs/scale.md.

    python benchmarks/spread.py --ray [--workers 1 2]         on Ray, on this machine
    python benchmarks/spread.py --workers 1 2 4 8 16          in plain processes
    python benchmarks/spread.py --write                       the page from what was measured

A training of 10,000 vehicles that the workers make themselves, 1,000 of them a round with one epoch
of about 30 steps, FedAvg. The dealing is that of `fedwatt run --ray`; plain processes take Ray's
place where it is not installed. Every worker has one thread. Speed is that of whole rounds,
aggregation and the evaluation of 50 vehicles included; all sizes meet the same rounds.
"""

import argparse
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any, Final

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.machine import machine  # noqa: E402
from fedwatt.federation import Federation, Training  # noqa: E402
from fedwatt.federation.dealing import (  # noqa: E402
    Deal,
    DealtBackend,
    RoundStart,
    Share,
    ShareResult,
    dealt_federation,
    train_share,
)
from fedwatt.methods import get  # noqa: E402
from fedwatt.synthetic.sketch import sketched_fleet  # noqa: E402

RESULTS = ROOT / "results" / "spread.json"
PAGE = ROOT / "docs" / "scale.md"
VEHICLES = 10_000
PARTICIPANTS = 1_000
TRIPS = 6
RATE = 0.01
METHOD: Final = get("fedavg")
_here: list[Federation] = []


def federation() -> Federation:
    training = Training(
        rounds=10**6,
        participation=PARTICIPANTS / VEHICLES,
        evaluate_vehicles=50,
        learning_rate=RATE,
    )
    return Federation(sketched_fleet(VEHICLES, trips=TRIPS), training=training, device="cpu")


def _begin() -> None:
    import torch

    os.environ["OMP_NUM_THREADS"] = "1"
    torch.set_num_threads(1)
    _here.append(federation())


def _train(start: RoundStart, share: Share) -> ShareResult:
    return train_share(_here[0], METHOD, start, share)


@contextmanager
def processes(workers: int) -> Iterator[Deal]:
    """Plain processes, each with a share at a time."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, context, initializer=_begin) as pool:

        def deal(start: RoundStart, shares: Sequence[Share]) -> list[ShareResult]:
            return list(pool.map(_train, [start] * len(shares), shares))

        yield deal


@contextmanager
def on_ray(workers: int) -> Iterator[Deal]:
    """Workers of a Ray cluster on this machine."""
    from fedwatt.runs.config import from_toml
    from fedwatt.tuning.grid import library
    from fedwatt.tuning.workers import RayWorkers

    config = from_toml(
        f"seeds = [1]\ndevice = 'cpu'\n[fleet]\ndata = 'sketch'\nvehicles = {VEHICLES}\n"
        f"trips = {TRIPS}\nmade = 'on-demand'\n[training]\nparticipation = "
        f"{PARTICIPANTS / VEHICLES}\nlearning_rate = {RATE}\n[[method]]\nname = 'fedavg'\n"
    )
    ray = library()
    ray.init(num_cpus=workers, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
    try:
        on_workers = RayWorkers(config, workers).federation(federation(), config.methods[0])
        backend = on_workers.backend
        assert isinstance(backend, DealtBackend)
        yield backend.deal
    finally:
        ray.shutdown()


def measure(workers: int, *, ray: bool, rounds: int) -> dict[str, Any]:
    """Seconds of each round but the first, which starts the workers; and a digest of the model."""
    from hashlib import sha256

    load = os.getloadavg()[0]
    with (on_ray if ray else processes)(workers) as deal:
        spread = dealt_federation(federation(), deal)
        state, _ = spread.start(METHOD)
        seconds = []
        for _ in range(rounds + 1):
            begin = time.perf_counter()
            state, _ = spread.advance(METHOD, state)
            seconds.append(time.perf_counter() - begin)
    return {
        "executor": "Ray" if ray else "processes",
        "workers": workers,
        "seconds": median(seconds[1:]),
        "rounds": seconds,
        "model": sha256(state.weights.numpy().tobytes()).hexdigest()[:16],
        "load_before": load,
        "machine": machine(),
    }


def page(rows: Sequence[dict[str, Any]]) -> str:
    """Return one sentence per machine and executor: time of a round by number of workers."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["machine"]["processor"], row["executor"]), []).append(row)
    sentences = []
    for (processor, executor), group in groups.items():
        group.sort(key=lambda row: int(row["workers"]))
        times = ", ".join(f"{row['seconds']:.2f} s with {row['workers']} workers" for row in group)
        same = all(row["model"] == group[0]["model"] for row in group)
        sentences.append(
            f"{executor.capitalize()} on {group[0]['machine']['cores']} cores ({processor}): "
            f"{times}; the models are {'identical' if same else 'not identical'}."
        )
    return (
        f"A round of FedAvg with {PARTICIPANTS:,} of {VEHICLES:,} vehicles, one thread per worker. "
        + " ".join(sentences)
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--ray", action="store_true")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--write", action="store_true", help="only write the page")
    options = parser.parse_args()
    for workers in [] if options.write else options.workers:
        fresh = measure(workers, ray=options.ray, rounds=options.rounds)
        recorded = json.loads(options.out.read_text("utf-8")) if options.out.exists() else []
        remaining = [row for row in recorded if _key(row) != _key(fresh)]
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps([*remaining, fresh], indent=1) + "\n", encoding="utf-8")
        print(f"{workers} workers: {fresh['seconds']:.2f} s a round", flush=True)
    if options.write or options.out == RESULTS:
        from benchmarks.marked import write_blocks

        write_blocks(PAGE, {"workers": page(json.loads(RESULTS.read_text("utf-8")))})


def _key(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["machine"]["processor"], row["executor"], row["workers"]


if __name__ == "__main__":
    main()
