"""A learned field against a terrain model: node by node, and how far grades are off by distance."""

import numpy as np
from matplotlib.figure import Figure

from fedwatt.elevation.compare import Baseline
from fedwatt.report.style import INK, MUTED, WIDTH_IN, styled

BLUE = "#0072b2"
ORANGE = "#d55e00"


@styled
def baseline_figure(found: Baseline) -> Figure:
    """Elevations of all nodes, learned over reference, and errors of grades by distance."""
    figure = Figure(figsize=(WIDTH_IN, 5.6))
    nodes, grades = figure.subplots(2, 1, height_ratios=(3, 1.4))
    reach = float(np.abs(np.concatenate([found.learned_m, found.reference_m])).max()) * 1.05
    line = np.array([-reach, reach])
    nodes.plot(line, line, color=MUTED, linewidth=0.8, label="equal")
    nodes.plot(
        found.reference_m,
        found.learned_m,
        "o",
        color=BLUE,
        markersize=1.6,
        alpha=0.35,
        markeredgewidth=0,
        rasterized=True,
    )
    nodes.plot(line, found.slope * line, color=ORANGE, label=f"slope {found.slope:.2f}")
    nodes.set(aspect="equal", xlim=line, ylim=line, xlabel="terrain model, m")
    nodes.set_title("Learned elevation of each node, m")
    nodes.text(
        0.03,
        0.97,
        f"r = {found.correlation:.3f}\nRMS {found.rms_m:.1f} m\nmedian {found.median_m:.1f} m",
        transform=nodes.transAxes,
        va="top",
        color=INK,
    )
    nodes.legend(loc="lower right")
    there = [one for one in found.grades if one.pairs]
    at = np.arange(len(there))
    grades.bar(at - 0.2, [100 * one.reference for one in there], 0.38, color=MUTED)
    grades.bar(at + 0.2, [100 * one.difference for one in there], 0.38, color=BLUE)
    for x, one in zip(at, there, strict=True):
        for shift, value in ((-0.2, one.reference), (0.2, one.difference)):
            text = f"{100 * value:.2f}"
            grades.text(x + shift, 100 * value, text, ha="center", va="bottom", fontsize=7.5)
    grades.set_xticks(at, [f"{one.span_m / 1000:g} km" for one in there])
    grades.set_title("Grade over a distance, %: true, and difference")
    grades.margins(y=0.2)
    return figure
