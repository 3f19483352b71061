"""Faulty vehicles against every defence: results/robustness.json and docs/figures/robustness.svg.

    python benchmarks/robustness.py           measure (a few minutes on one core), then draw
    python benchmarks/robustness.py --draw    draw what was measured before

Twenty synthetic vehicles, all of them in every round, four of them faulty. Every cell is the test
RMSE after the last round; the figure shows nothing that is not in the file.
"""

import json
import sys
from pathlib import Path
from statistics import fmean, median
from typing import Any

import matplotlib
import torch
from matplotlib.figure import Figure

from fedwatt.federation import Federation, Training
from fedwatt.files import write_atomically, write_text
from fedwatt.methods import get
from fedwatt.methods.attack import is_faulty
from fedwatt.report.style import INK, MUTED, PAPER, STYLE, WIDTH_IN, styled
from fedwatt.synthetic import synthetic_fleet
from fedwatt.windows import DataSettings, Fleet

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results" / "robustness.json"
FIGURE = ROOT / "docs" / "figures" / "robustness.svg"

VEHICLES = 20
FAULTY = 4
ROUNDS = 30
SEEDS = (1, 2, 3)
STRIDE = 20
FAULTS = {
    "": "no\nfaults",
    "+sign-flip": "sign flip\n×{scale:g}",
    "+scaled-update": "scaled\n×{scale:g}",
    "+gaussian-update": "noise\n×{scale:g}",
    "+label-shift": "labels\n+{scale:g} sd",
}
DEFENCES = {
    "": "Average (FedAvg)",
    "@krum": "Krum",
    "@multikrum": "Multi-Krum",
    "@median": "Median",
    "@trimmed": "Trimmed mean",
    "@geometric": "Geometric median",
    "@bounded": "Norm bound",
}


def faulty_names(fleet: Fleet, seed: int) -> list[str]:
    """Return the names of the faulty vehicles of a draw."""
    share = FAULTY / VEHICLES
    return [c.name for c in fleet.clients if is_faulty(c.name, seed=seed, share=share)]


def fault_seed(fleet: Fleet) -> int:
    """Return the first draw with exactly `FAULTY` faulty vehicles."""
    return next(seed for seed in range(1000) if len(faulty_names(fleet, seed)) == FAULTY)


def measure() -> dict[str, Any]:
    """Train every pair of fault and defence; RMSE in Wh by seed, null where it diverged."""
    fleet = synthetic_fleet(VEHICLES, settings=DataSettings(stride=STRIDE))
    training = Training(rounds=ROUNDS, participation=1.0, evaluate_every=ROUNDS)
    federation = Federation(fleet, training=training, seeds=SEEDS, device="cpu")
    drawn = {"fault_share": FAULTY / VEHICLES, "fault_seed": fault_seed(fleet)}
    clean = federation.train("fedavg").history
    usual_drift = median(row["drift"] for row in clean.clients)
    tuned: dict[str, dict[str, Any]] = {
        "@krum": {"byzantine": FAULTY},
        "@multikrum": {"byzantine": FAULTY},
        "@trimmed": {"trim": FAULTY / VEHICLES},
        "@bounded": {"bound": usual_drift},
    }
    rmse: dict[str, dict[str, list[float | None]]] = {}
    for fault in FAULTS:
        rmse[fault] = {}
        for defence in DEFENCES:
            settings = tuned.get(defence, {}) | (drawn if fault else {})
            rows = federation.train(get(f"fedavg{fault}{defence}", **settings)).history.rounds
            last = {row["seed"]: row for row in rows}
            rmse[fault][defence] = [
                None if last[seed]["diverged"] else last[seed]["test_rmse"] for seed in SEEDS
            ]
            print(f"fedavg{fault}{defence}: {rmse[fault][defence]}", flush=True)
    return {
        "fleet": fleet.source,
        "data_hash": fleet.data_hash(),
        "vehicles": VEHICLES,
        "stride": STRIDE,
        "rounds": ROUNDS,
        "seeds": list(SEEDS),
        "faulty": faulty_names(fleet, int(drawn["fault_seed"])),
        "fault_scale": {
            fault: get(f"fedavg{fault}").settings.get("fault_scale", 0.0) for fault in FAULTS
        },
        "settings": tuned,
        "torch": torch.__version__,
        "test_rmse_wh": rmse,
    }


@styled
def robustness_figure(results: dict[str, Any]) -> Figure:
    """Draw the RMSE of every defence under every fault; darker is further from clean averaging."""
    rmse = results["test_rmse_wh"]
    base = fmean(rmse[""][""])
    figure = Figure(figsize=(WIDTH_IN, 2.9))
    axes = figure.add_subplot()
    colours = matplotlib.colors.LinearSegmentedColormap.from_list(
        "harm", [PAPER, "#f6c9a8", "#d55e00"]
    )
    for x, fault in enumerate(FAULTS):
        for y, defence in enumerate(DEFENCES):
            values = [value for value in rmse[fault][defence] if value is not None]
            lost = len(values) < len(rmse[fault][defence])
            value = fmean(values) if values and not lost else float("inf")
            harm = 1.0 if lost else min(max(value / base - 1.1, 0.0) / 0.9, 1.0)
            box = matplotlib.patches.Rectangle(
                (x - 0.48, y - 0.45), 0.96, 0.9, facecolor=colours(harm), edgecolor="none"
            )
            axes.add_patch(box)
            text = "diverged" if lost else f"{value:.1f}" if value < 1000 else f"{value:.0e}"
            within = value <= 1.1 * base
            axes.text(
                x,
                y,
                text,
                ha="center",
                va="center",
                color=PAPER if harm > 0.6 else INK,
                weight="normal" if within else "bold",
                fontsize=8 if lost else 8.5,
            )
    axes.set_xlim(-0.5, len(FAULTS) - 0.5)
    axes.set_ylim(len(DEFENCES) - 0.5, -0.5)
    scales = results["fault_scale"]
    names = [name.format(scale=scales[fault]) for fault, name in FAULTS.items()]
    axes.set_xticks(range(len(FAULTS)), names)
    axes.set_yticks(range(len(DEFENCES)), list(DEFENCES.values()))
    axes.xaxis.tick_top()
    axes.tick_params(length=0, colors=INK)
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    vehicles = results["vehicles"]
    faulty = len(results["faulty"])
    seeds = len(results["seeds"])
    figure.supxlabel(
        f"Test RMSE (Wh) with {faulty} of {vehicles} vehicles faulty, mean of {seeds} seeds.\n"
        f"Bold and tinted: more than 10 % above averaging without faults ({base:.1f}).",
        x=0.02,
        ha="left",
        fontsize=8.5,
        color=MUTED,
    )
    return figure


def main() -> None:
    """Measure, unless `--draw` is given, and draw."""
    if "--draw" not in sys.argv:
        write_text(RESULTS, json.dumps(measure(), indent=2) + "\n")
    figure = robustness_figure(json.loads(RESULTS.read_text(encoding="utf-8")))
    with matplotlib.rc_context(STYLE):
        write_atomically(
            FIGURE, lambda path: figure.savefig(path, format="svg", metadata={"Date": None})
        )


if __name__ == "__main__":
    main()
