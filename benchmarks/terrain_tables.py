"""Write the tables of docs/accuracy.md from results/terrain_*.json, between their markers.

    python benchmarks/terrain_tables.py            # --check: only say whether it is up to date

Rows that have not been measured yet are left out.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from benchmarks import marked
from benchmarks import terrain_reference_tables as reference
from benchmarks.terrain_rows import Cells, by_seed, markdown, overall, read, with_interval

REPOSITORY = Path(__file__).resolve().parents[1]
PAGE = REPOSITORY / "docs" / "accuracy.md"

GROUPS = ("ridge", "fo-ri-fedavg", "fedavg", "newcomer, fo-ri-fedavg", "newcomer, fedavg")
PER_VEHICLE = {
    "ridge, no terrain": "ridge, none",
    "ridge, fleet's field": "ridge, field",
    "fo-ri-fedavg, no terrain, global": "global, none",
    "fo-ri-fedavg, fleet's field, global": "global, field",
    "fo-ri-fedavg, fleet's field, personal": "personal, field",
    "fo-ri-fedavg, k = 3, private fields, personal": "personal, k = 3",
}
PER_NEWCOMER = {
    "newcomer, fo-ri-fedavg, no terrain, global": "global, none",
    "newcomer, fo-ri-fedavg, field of others, global": "global, field",
    "newcomer, fo-ri-fedavg, no terrain, personal": "personal, none",
    "newcomer, fo-ri-fedavg, field of others, personal": "personal, field",
    "newcomer, fo-ri-fedavg, k = 3 of others, private field, personal": "personal, k = 3",
}


# ------------------------------------------------------------------------------ tables
def main_table() -> str:
    cells: Cells = read("terrain_ved.json")
    rows = []
    for group in GROUPS:
        for row, seeds in cells.items():
            if row.startswith(f"{group},") and (values := by_seed(seeds)):
                rows.append([row, with_interval(list(values.values())), str(len(values))])
    return markdown(["model", "RMSE, Wh per window", "seeds"], rows)


def vehicle_table(columns: dict[str, str]) -> str:
    cells: Cells = read("terrain_ved.json")
    there = {row: head for row, head in columns.items() if by_seed(cells.get(row, {}))}
    if not there:
        return ""
    complete = {row: {s: cells[row][s] for s in by_seed(cells[row])} for row in there}
    vehicles = next(iter(next(iter(complete.values())).values()))
    rows = [
        [vehicle]
        + [with_interval([own[vehicle] for own in seeds.values()]) for seeds in complete.values()]
        for vehicle in vehicles
    ]
    return markdown(["vehicle", *there.values()], rows)


def method_table() -> str:
    """FO-RI less FedAvg, seed by seed: the same splits, windows and initial models."""
    cells: Cells = read("terrain_ved.json")
    rows = []
    for row in cells:
        if "fo-ri-fedavg, " not in row:
            continue
        ours, theirs = by_seed(cells[row]), by_seed(cells.get(row.replace("fo-ri-", ""), {}))
        both = sorted(set(ours) & set(theirs))
        if both:
            difference = [ours[seed] - theirs[seed] for seed in both]
            rows.append(
                [
                    row.replace("fo-ri-fedavg, ", ""),
                    with_interval(difference, "+", 2),
                    str(len(both)),
                ]
            )
    return markdown(["FO-RI-FedAvg less FedAvg", "Wh per window", "seeds"], rows) if rows else ""


def low_table(kind: str, judged: str, beside: str) -> str:
    """Each change against the row as it is, seed by seed."""
    cells: Cells = read("terrain_low.json")
    names = [r.removeprefix(f"{kind}, ").removesuffix(f", {judged}") for r in cells]
    names = [n for n, r in zip(names, cells, strict=True) if r == f"{kind}, {n}, {judged}"]
    plain = {
        which: by_seed(cells.get(f"{kind}, as it is, {which}", {})) for which in (judged, beside)
    }
    rows = []
    for name in sorted(names, key=lambda n: n != "as it is"):
        found = {
            which: by_seed(cells.get(f"{kind}, {name}, {which}", {})) for which in (judged, beside)
        }
        both = sorted(set(found[judged]) & set(plain[judged]))
        if not both:
            continue
        change = [
            ""
            if name == "as it is"
            else with_interval([found[w][s] - plain[w][s] for s in both], "+", 2)
            for w in (beside, judged)
        ]
        level = f"{np.mean([found[judged][seed] for seed in both]):.1f}"
        rows.append([name, level, change[1], change[0], str(len(both))])
    if not rows:
        return ""
    head = [kind, f"{judged}, Wh", f"change, {judged}", f"change, {beside}", "seeds"]
    return markdown(head, rows)


def gradient_table() -> str:
    cells: Cells = read("terrain_gradient.json")
    rows = []
    for row, seeds in cells.items():
        if row.endswith(", test") and (values := by_seed(seeds)):
            name = row.removesuffix(", test")
            judged = by_seed(cells[f"{name}, validation"])
            rows.append(
                [
                    name,
                    with_interval([judged[seed] for seed in values]),
                    with_interval(list(values.values())),
                    str(len(values)),
                ]
            )
    return markdown(["field", "validation", "test", "seeds"], rows) if rows else ""


def fault_table() -> str:
    """Changes against no terrain of the vehicles that had every fault, over seeds and vehicles."""
    cells: Cells = read("terrain_faults.json")
    faults = [row.removesuffix(", the others") for row in cells if row.endswith(", the others")]
    given = [own for fault in faults for own in cells[f"{fault}, global"].values()]
    if not given:
        return ""
    spoiled = [name for name in given[0] if all(name in own for own in given)]
    rows = []
    for fault in ("no terrain, another initial model", "no fault", *faults):
        row = [fault]
        for which in ("global", "personal"):
            own, level = cells[f"{fault}, {which}"], cells[f"no terrain, {which}"]
            each = {name: change(own, level, [name]) for name in spoiled}
            worst = max(each, key=lambda name: each[name])
            row += [percent(change(own, level, spoiled)), f"{percent(each[worst])} ({worst})"]
            alone = cells.get(f"{fault}, alone, {which}")
            row.append(
                percent(max(change(alone, level, [name]) for name in spoiled)) if alone else ""
            )
        beside = cells.get(f"{fault}, the others")
        row.append(percent(others_change(beside, cells["no fault, global"])) if beside else "")
        rows.append(row)
    models = [[which, "worst vehicle", "worst, hills alone"] for which in ("global", "personal")]
    return markdown(["fault of one vehicle", *models[0], *models[1], "the others"], rows)


def fault_words() -> str:
    """What the table of faults comes to, and what the level model costs a fleet of sound vehicles.

    Errors over all vehicles are means over seeds, as in the other tables.
    """
    cells: Cells = read("terrain_faults.json")
    if not cells:
        return ""
    single: list[tuple[float, str]] = []
    chance, worst = -1.0, dict[str, float]()
    for row, own in cells.items():
        fault, which = row.rsplit(", ", 1)
        level = cells.get(f"no terrain, {which}")
        if level is None or "alone" in row or fault in ("no terrain", "no fault"):
            continue
        each = {
            (seed, name): errors[name] / level[seed][name] - 1
            for seed, errors in own.items()
            for name in errors
        }
        if "another initial model" in fault:
            chance = max(chance, *each.values())
            continue
        names = sorted(next(iter(own.values())))
        for name in names:
            worst[name] = max(worst.get(name, -1.0), change(own, level, [name]))
        single += [(share, f"{name}, {fault}") for (_, name), share in each.items()]
    most, where = max(single)
    last, *others = sorted(worst, key=lambda name: -worst[name])

    def fleet(row: str) -> float:
        return float(np.mean([overall(own) for own in cells[row].values()]))

    def sound(which: str) -> str:
        alone = fleet(f"no fault, alone, {which}")
        return f"{fleet(f'no fault, {which}'):.1f} instead of {alone:.1f}"

    return (
        f"The worst vehicle of any fault is {last}, at {percent(worst[last])} over the seeds; no "
        f"other is above {percent(worst[others[0]])}. In a single split of a single "
        f"vehicle it can be more: at most {percent(most)} ({where}), where another initial model "
        f"alone makes up to {percent(chance)}. With sound positions the level model "
        f"makes {sound('global')} Wh over all vehicles as one global model, {sound('personal')} "
        "personal."
    )


def change(
    ours: dict[str, dict[str, float]], theirs: dict[str, dict[str, float]], vehicles: Sequence[str]
) -> float:
    """By how much the RMSE over seeds and vehicles is larger than that of others, as a share."""
    one, other = (
        np.array([[row[seed][name] for name in vehicles] for seed in ours])
        for row in (ours, theirs)
    )
    return float(np.sqrt(np.mean(one**2) / np.mean(other**2)) - 1)


def others_change(beside: dict[str, dict[str, float]], sound: dict[str, dict[str, float]]) -> float:
    """The same of all vehicles but the faulty one, against a fleet in which all are sound."""
    ours, theirs = [], []
    for seed, own in beside.items():
        for faulty, rmse in own.items():
            ours.append(rmse**2)
            theirs.append(np.mean([v**2 for name, v in sound[seed].items() if name != faulty]))
    return float(np.sqrt(np.mean(ours) / np.mean(theirs)) - 1)


def percent(share: float) -> str:
    return f"{100 * share:+.1f} %"


def scale_table() -> str:
    found = read("terrain_scale.json")
    if not found:
        return ""
    year, field = found["a year of one vehicle"], found["a million nodes"]
    rows = [
        [
            f"one vehicle's year ({year['hours']} h, {year['kilometres']:,} km) summed",
            f"{year['seconds']} s",
            f"message of {year['message_mb']} MB",
        ],
        [
            f"{field['vehicles']:,} messages unpacked and added up",
            f"{field['adding_s']} s",
            f"{field['pairs']:,} pairs of nodes",
        ],
        [
            f"a field of {field['nodes']:,} nodes solved",
            f"{field['solving_s']} s",
            f"at most {field['peak_memory_gb']} GB in all",
        ],
    ]
    return markdown(["step", "time of one core", "size"], rows)


def noise_table() -> str:
    found = read("terrain_private.json")
    rows = [
        [f"{row['vehicles']:,}", _epsilon(row["epsilon"]), f"{row['nodes']:,}", row["correlation"]]
        for row in found.get("rows", ())
    ]
    rows = [[*row[:3], "–" if row[3] is None else f"{row[3]:.2f}"] for row in rows]
    return (
        markdown(["vehicles", "ε", "nodes published", "correlation with truth"], rows)
        if rows
        else ""
    )


def _epsilon(value: float | None) -> str:
    return "no noise" if value is None else f"{value:.1f}"


BLOCKS: dict[str, Callable[[], str]] = {
    "tables": main_table,
    "vehicles": lambda: vehicle_table(PER_VEHICLE),
    "newcomers": lambda: vehicle_table(PER_NEWCOMER),
    "methods": method_table,
    "low ridge": lambda: low_table("ridge", "test", "validation"),
    "low network": lambda: low_table("network", "personal", "global"),
    "gradient": gradient_table,
    "faults": fault_table,
    "faults in words": fault_words,
    "reference": reference.table,
    "reference in words": reference.words,
    "noise": noise_table,
    "scale": scale_table,
}


def filled(text: str) -> str:
    """The page with every block written anew."""
    return marked.filled(text, {name: table() or "Not measured." for name, table in BLOCKS.items()})


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--check", action="store_true", help="change nothing; fail if out of date")
    check = options.parse_args().check
    text = PAGE.read_text(encoding="utf-8")
    fresh = filled(text)
    if check:
        sys.exit(0 if fresh == text else f"{PAGE} is out of date: run this without --check.")
    PAGE.write_text(fresh, encoding="utf-8")


if __name__ == "__main__":
    main()
