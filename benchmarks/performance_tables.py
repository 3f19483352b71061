"""The tables of docs/performance.md, from results/performance_*.json.

    python benchmarks/performance_tables.py

A table whose file is not there stays as it is.
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
    "jax": "JAX, one jitted program (lax.map over vehicles, scan over steps)",
    "flower": "Flower's Ray simulation",
    "fedavg, 1 thread": "fedwatt, FedAvg, 1 thread",
}


def table(head: str, rows: Iterable[str]) -> str:
    """A Markdown table; cells are separated by bars, and all but the first are numbers."""
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


def on_gpu(found: Found) -> str:
    """The GPU and torch of a record, and the torch that is pinned now if it is another."""
    (pinned,) = re.findall(r"^torch==(\S+)$", CONSTRAINTS.read_text(encoding="utf-8"), re.MULTILINE)
    ran = found["torch"]
    other = f" (constraints.txt has {pinned})"
    return f"{found['device']}, torch {ran}{'' if ran.split('+')[0] == pinned else other}"


def engine(found: Found) -> dict[str, str]:
    mlp = found["mlp"]
    rows = [
        f"{WAYS.get(way) or 'fedwatt, ' + name_of(way)}|{seconds * 1000:.0f}|"
        f"{mlp['times_the_floor'][way]:.1f}|{mlp['times_fedavg'][way]:.2f}"
        for way, seconds in mlp["seconds_a_round"].items()
    ]
    steps = found["recurrent"]["seconds_a_client_step"]
    return {
        "engine": table("way|ms a round|times the floor|times FedAvg's time", rows)
        + f"\n\nFloor: {mlp['floor_s'] * 1000:.0f} ms. Gathering the windows from the series would "
        f"take {mlp['gather_share']:.1%} of FedAvg's time on one thread; the products in C read "
        "them where they lie. "
        f"{on(mlp['machine'], found['load_before'])}.",
        "recurrent": table(
            "model|plain loop, ms a client-step|FedAvg|FO-RI-FedAvg|times faster",
            (
                f"{name}|{own['plain loop'] * 1e3:.2f}|{own['fedavg'] * 1e3:.2f}|"
                f"{own['fo-ri-fedavg'] * 1e3:.2f}|{own['plain loop'] / own['fedavg']:.1f}"
                for name, own in steps.items()
            ),
        ),
    }


def probe(found: Found) -> dict[str, str]:
    own, rounds = found["probe"], found["rounds"]
    share = table(
        "windows of a vehicle|FedAvg, ms a round|the three probes, ms|added at R = 5",
        (
            f"{one['windows']:,}|{one['seconds_a_round']['fedavg'] * 1e3:.0f}|"
            f"{one['probe_s'] * 1e3:.0f}|{one['amortised_probe_share_R5']:.2%}"
            for one in rounds
        ),
    )
    parts = list(rounds[0]["parts_s"])
    return {
        "probe": f"{own['passes']:,} forward passes take {own['seconds']['naive'] * 1e3:.0f} ms, "
        f"the probe {own['seconds']['probe'] * 1e3:.1f} ms: **{own['times_faster']:.1f} times "
        f"faster**, losses equal to {own['largest_difference']:.0e}. A probe of a GRU takes "
        f"{found['backbones_s']['gru']:.1f} s, of an LSTM {found['backbones_s']['lstm']:.1f} s. "
        f"{on(own['machine'], found['load_before'])}.\n\n{share}",
        "rounds": table(
            "method (ms a round without probes)|" + "|".join(f"{o['windows']:,}" for o in rounds),
            (
                f"{name_of(method)}|"
                + "|".join(f"{one['seconds_a_round'][method] * 1e3:.0f}" for one in rounds)
                for method in rounds[0]["seconds_a_round"]
            ),
        ),
        "parts": table(
            "part of a probing round of FO-RI-FedAvg, ms|"
            + "|".join(f"{one['windows']:,}" for one in rounds),
            (
                f"{part}|" + "|".join(f"{one['parts_s'][part] * 1e3:.1f}" for one in rounds)
                for part in parts
            ),
        ),
        "sensitivity": table(
            "M|m|B_probe|R|" + "|".join(f"{one['windows']:,}" for one in rounds),
            (
                "|".join(str(row[key]) for key in ("M", "m", "B", "R"))
                + "|"
                + "|".join(f"{one['sensitivity'][i]['probe_share']:.2%}" for one in rounds)
                for i, row in enumerate(rounds[0]["sensitivity"])
            ),
        ),
    }


def gpu(found: Found) -> dict[str, str]:
    mlp, recurrent = (
        [row for name, own in found[kind].items() for row in beside_loop(name, own)]
        for kind in ("precisions", "recurrent")
    )
    head = (
        "way|vehicles in the stack|ms a step|client-steps a second|times the loop|"
        f"in a round of {SHORT} steps"
    )
    return {
        "gpu": f"{table(head, mlp)}\n\n{on_gpu(found)}; CUDA {found['cuda']}.",
        "gpu recurrent": table(head, recurrent),
    }


def beside_loop(name: str, found: Found) -> list[str]:
    """The plain loop and the stacks, a row each."""
    plain = found["plain_client_step_s"]
    return [
        f"plain loop, {name}|1|{plain * 1e3:.3f}||1|1",
        *(
            f"{name_of(one['method'])}, {name}|{one['rows']}|{one['step_s'] * 1e3:.3f}|"
            f"{one['client_steps_per_s']:,.0f}|{one['times_plain_loop']:,.0f}|"
            f"{SHORT * one['rows'] * plain / one['round_s']:,.0f}"
            for one in found["stacks"]
        ),
    ]


def main_run(found: Found) -> dict[str, str]:
    run = found["rounds_run"]
    rows = [
        f"{name_of(name)}|{own['round_s'] * 1e3:.0f}|{own['whole_s']:.0f}"
        for name, own in found["methods"].items()
    ]
    note = (
        "all of them run"
        if run >= 300
        else f"{run} were run, the others reckoned from the median of the later ones"
    )
    how = (
        "one after the other"
        if found["processes"] == 1
        else f"at the same time in {found['processes']} processes that share the GPU"
    )
    return {
        "main run": table("method|ms a round|300 rounds, s", rows)
        + f"\n\nAll eleven, {how}: **{found['whole_s'] / 60:.1f} minutes** for 300 "
        f"rounds ({note}; starting and compiling included). {found['vehicles']} vehicles, "
        f"{found['windows']:,} training windows, {found['seeds']} seeds in one stack, an "
        f"evaluation after every round. {on_gpu(found)}."
    }


def agreement(found: Found) -> dict[str, str]:
    rows = found["largest_difference_over_largest_weight"]
    made = table(
        "method|float64|float32",
        (
            f"{name_of(r['method'])}, {r['model']}|{r['float64']:.0e}|{r['float32']:.0e}"
            for r in rows
        ),
    )
    worst = {p: max(rows, key=lambda row: row[p]) for p in ("float64", "float32")}
    most = ", ".join(f"{row[p]:.0e} in {p} ({name_of(row['method'])})" for p, row in worst.items())
    return {"agreement": f"{made}\n\nAt most {most}. {on_gpu(found)}."}


def memory(found: Found) -> dict[str, str]:
    windows = sum(found["windows"].values())
    return {
        "memory": f"Two rounds of FO-RI-FedAvg on {found['vehicles']} vehicles of VED "
        f"({windows:,} windows), all of them training, with every evaluation: "
        f"**{found['peak_mb']:.0f} MB** at the highest, the whole process. {on(found['machine'])}."
    }


FILES: dict[str, Callable[[Found], dict[str, str]]] = {
    "engine": engine,
    "probe": probe,
    "gpu": gpu,
    "main_run": main_run,
    "agreement": agreement,
    "memory": memory,
}


def blocks() -> dict[str, str]:
    """Markdown by the name of its place on the page, of all records that are there."""
    made: dict[str, str] = {}
    for file, tables in FILES.items():
        path = ROOT / "results" / f"performance_{file}.json"
        if not path.exists():
            print(f"{path} is not there; its tables stay as they are.")
            continue
        made |= tables(json.loads(path.read_text(encoding="utf-8")))
    return made


def main() -> None:
    write_blocks(PAGE, blocks())


if __name__ == "__main__":
    main()
