"""Rows a second and peak memory of the VED import, beside a plain pandas pipeline.

    python -m benchmarks.import_ved PATH/TO/EV_PHEV.parquet

Both select the electric cars and the all-electric trips of plug-in hybrids, cut trips at gaps, drop
parts under 120 s or 500 m, resample every channel to 1 s by its own rule and integrate held power
exactly. The pandas pipeline checks nothing else: no glitches, duplicates, clocks or account.

Every run has a process of its own; the two take turns and the median of `--repeats` is shown, with
the range of the ratio. Wall time follows whatever else the machine does: a run taken while others
worked gave ratios from 3 to 6.5, so CPU time stands beside it. The energies and hours that both
arrive at are printed: they must agree closely for the comparison to count. Every run's figures, and
how busy the machine was, go to results/import_ved.json.
"""

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from statistics import median

from fedwatt.errors import RunError

REPOSITORY = Path(__file__).resolve().parents[1]
RAW = {
    "VehId": "vehicle",
    "Trip": "trip",
    "Timestamp(ms)": "time_ms",
    "Latitude[deg]": "latitude",
    "Longitude[deg]": "longitude",
    "Vehicle Speed[km/h]": "speed",
    "Engine RPM[RPM]": "rpm",
    "OAT[DegC]": "ambient",
    "Air Conditioning Power[kW]": "ac_kw",
    "Air Conditioning Power[Watts]": "ac_w",
    "Heater Power[Watts]": "heater",
    "HV Battery Current[A]": "current",
    "HV Battery SOC[%]": "soc",
    "HV Battery Voltage[V]": "voltage",
}
HELD = ["ambient", "ac", "heater", "soc"]
LINEAR = ["speed", "latitude", "longitude"]


def with_fedwatt(path: Path) -> dict[str, float]:
    from fedwatt.telemetry.readers import VED_CLEANING, import_ved

    cleaning = replace(VED_CLEANING, minimum_trips=1)
    vehicles = import_ved([path], powertrain=("ev", "phev-electric"), cleaning=cleaning)
    energy_wh = 0.0
    samples = 0
    count = 0
    for vehicle in vehicles:
        count += 1
        energy_wh += sum(float(trip.channels["energy_wh"].sum()) for trip in vehicle.trips)
        samples += sum(trip.seconds for trip in vehicle.trips)
    rows = vehicles.account.count("read", "rows")
    return {
        "rows": rows,
        "vehicles": count,
        "kwh": energy_wh / 1000,
        "hours": samples / 3600,
    }


def with_pandas(path: Path) -> dict[str, float]:
    import numpy as np
    import pandas as pd

    table = pd.read_parquet(path, columns=list(RAW)).rename(columns=RAW)
    rows = len(table)
    table["speed"] /= 3.6
    table["ac"] = table["ac_w"].fillna(table["ac_kw"] * 1000)
    engine = table.groupby(["vehicle", "trip"])["rpm"].transform("max")
    table = table[~(engine > 0)].sort_values(["vehicle", "trip", "time_ms"])
    table = table.drop_duplicates(["vehicle", "trip", "time_ms"], keep="last")
    trip = table.groupby(["vehicle", "trip"])
    gap_s = trip["time_ms"].diff() / 1000
    standing = (table["speed"] == 0) & (trip["speed"].shift() == 0)
    cut = gap_s > np.where(standing, 31, 10)
    table["part"] = cut.groupby([table["vehicle"], table["trip"]]).cumsum()
    energy_wh = 0.0
    samples = 0
    for _, part in table.groupby(["vehicle", "trip", "part"]):
        seconds = (part["time_ms"].to_numpy() - part["time_ms"].iloc[0]) / 1000
        if seconds[-1] < 120:
            continue
        part = part.set_index(pd.to_timedelta(seconds, unit="s"))
        watts = part["voltage"].astype(float) * -part["current"].astype(float)
        joules = (watts.shift() * np.diff(seconds, prepend=0)).fillna(0).cumsum()
        clock = pd.timedelta_range(start="1s", periods=int(np.ceil(seconds[-1])), freq="1s")
        both = part.index.union(clock)
        held = part[HELD].reindex(clock, method="ffill")
        changed = part[LINEAR].where(part[LINEAR].ne(part[LINEAR].shift()))
        lines = changed.reindex(both).interpolate("time").reindex(clock)
        if lines["speed"].sum() < 500:
            continue
        total = joules.reindex(both).interpolate("time").reindex(clock)
        increments = total.diff().fillna(total.iloc[0])
        clean = pd.concat([held, lines, increments.rename("energy_wh") / 3600], axis=1)
        energy_wh += clean["energy_wh"].sum()
        samples += len(clean)
    return {"rows": rows, "kwh": energy_wh / 1000, "hours": samples / 3600}


PIPELINES = {"fedwatt": with_fedwatt, "pandas": with_pandas}


Figures = dict[str, float]


def run_here(pipeline: str, path: Path) -> Figures:
    """Figures of one pipeline in this process."""
    start = time.perf_counter()
    found = PIPELINES[pipeline](path)
    found["seconds"] = time.perf_counter() - start
    used = resource.getrusage(resource.RUSAGE_SELF)
    found["cpu_seconds"] = used.ru_utime + used.ru_stime
    found["peak_mb"] = used.ru_maxrss / 1024
    return found


def measure(path: Path, repeats: int) -> dict[str, list[Figures]]:
    """Figures of both pipelines, taking turns, each run in a fresh process."""
    figures: dict[str, list[Figures]] = {pipeline: [] for pipeline in PIPELINES}
    for _ in range(repeats):
        for pipeline in PIPELINES:
            figures[pipeline].append(run_fresh(pipeline, path))
    return figures


def run_fresh(pipeline: str, path: Path) -> Figures:
    """Figures of one pipeline in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.import_ved", str(path), "--only", pipeline]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RunError(f"The import of {path} failed: {done.stderr.splitlines()[-1]}")
    found: Figures = json.loads(done.stdout)
    return found


def bench_import(path: Path, *, repeats: int = 3) -> Figures:
    """Medians of fedwatt's import over `repeats` fresh processes."""
    runs = [run_fresh("fedwatt", path) for _ in range(repeats)]
    return {name: median(run[name] for run in runs) for name in runs[0]}


def report(figures: dict[str, list[Figures]]) -> list[str]:
    """Lines for people: medians of each pipeline, then how they compare."""
    lines = []
    middle = {}
    for name, runs in figures.items():
        found = middle[name] = {key: median(run[key] for run in runs) for key in runs[0]}
        lines.append(
            f"{name:8} {found['rows'] / found['seconds']:>10,.0f} rows/s {found['seconds']:6.1f} s "
            f"({found['cpu_seconds']:.1f} s CPU) {found['peak_mb']:6.0f} MB   "
            f"{found['kwh']:.2f} kWh in {found['hours']:.2f} h"
        )
    turns = list(zip(figures["pandas"], figures["fedwatt"], strict=True))
    for key, label in (("seconds", "wall time"), ("cpu_seconds", "CPU time")):
        ratios = [plain[key] / ours[key] for plain, ours in turns]
        lines.append(
            f"{label}: pandas takes {median(ratios):.1f} times as long "
            f"({min(ratios):.1f} to {max(ratios):.1f} over {len(ratios)} turns)"
        )
    share = middle["fedwatt"]["peak_mb"] / middle["pandas"]["peak_mb"]
    return [*lines, f"memory: fedwatt takes {share:.2f} of what pandas does"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("path", type=Path, help="a Parquet file in VED's layout")
    parser.add_argument("--repeats", type=int, default=3, help="turns of each pipeline")
    parser.add_argument("--only", choices=PIPELINES, help="run one pipeline once and print JSON")
    arguments = parser.parse_args()
    if arguments.only:
        print(json.dumps(run_here(arguments.only, arguments.path)))
        return
    load = os.getloadavg()[0]
    figures = measure(arguments.path, arguments.repeats)
    lines = report(figures)
    results = {
        "data": "VED, rows of electric cars and plug-in hybrids, one Parquet file",
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, load {load:.1f} before",
        "summary": lines,
        "runs": figures,
    }
    out = REPOSITORY / "results" / "import_ved.json"
    out.parent.mkdir(exist_ok=True)
    out.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
