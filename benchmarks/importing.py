"""How fast VED is imported: rows a second and peak memory of a process that does nothing else."""

import json
import resource
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from statistics import median
from time import perf_counter

from fedwatt.errors import RunError


def bench_import(path: Path, *, repeats: int = 3) -> dict[str, float]:
    """Medians over `repeats` fresh processes."""
    runs: list[dict[str, float]] = []
    for _ in range(repeats):
        command = [sys.executable, "-m", "benchmarks.importing", str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RunError(f"The import of {path} failed: {done.stderr.splitlines()[-1]}")
        runs.append(json.loads(done.stdout))
    return {name: median(run[name] for run in runs) for name in runs[0]}


def main() -> None:
    """Import once and print the figures as JSON."""
    from fedwatt.telemetry.readers import VED_CLEANING, import_ved

    begin = perf_counter()
    vehicles = import_ved(
        [Path(sys.argv[1])],
        powertrain=("ev", "phev-electric"),
        cleaning=replace(VED_CLEANING, minimum_trips=1),
    )
    count, samples = 0, 0
    for vehicle in vehicles:
        count += 1
        samples += sum(trip.seconds for trip in vehicle.trips)
    used = resource.getrusage(resource.RUSAGE_SELF)
    figures = {
        "rows": vehicles.account.count("read", "rows"),
        "vehicles": count,
        "hours": samples / 3600,
        "seconds": perf_counter() - begin,
        "cpu_seconds": used.ru_utime + used.ru_stime,
        "peak_mb": used.ru_maxrss / 1024,
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
