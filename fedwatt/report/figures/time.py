"""Time of a round by part."""

from matplotlib.figure import Figure

from fedwatt.report import style
from fedwatt.report.load import Run
from fedwatt.report.times import mean_seconds


@style.styled
def time_figure(run: Run) -> Figure:
    """Mean time of a round by what it was spent on, for one seed; a bar for each method."""
    times = {method: own for method in run.methods if (own := mean_seconds(run, method))}
    figure = Figure(figsize=(style.WIDTH_IN, 1.35 + 0.42 * len(times)))
    axes = figure.subplots()
    if not times:
        style.note(axes, "No round was timed.")
        return figure
    longest = max(sum(own.values()) for own in times.values())
    unit, factor = ("ms", 1e3) if longest < 1 else ("s", 1.0)
    used = [part for part in style.PARTS if any(own[part] > 0 for own in times.values())]
    for row, (method, own) in enumerate(times.items()):
        left = 0.0
        for part in used:
            width = own[part] * factor
            bars = axes.barh(row, width, left=left, height=0.62, color=style.PARTS[part].colour)
            bars[0].set_gid(style.series(method))
            if row == 0:
                bars[0].set_label(part)
            left += width
        text = axes.annotate(f"{left:.3g} {unit}", (left, row), xytext=(4, 0), va="center")
        text.set(anncoords="offset points", color=style.INK, gid=style.series(method))
    axes.set_yticks(range(len(times)), [style.name_of(method) for method in times])
    axes.set_ylim(len(times) - 0.5, -0.5)
    axes.margins(x=0.14)
    axes.set_xlabel(f"mean time of a round and seed, {unit}")
    style.horizontal(axes)
    style.legend(figure, handlelength=0.9, handletextpad=0.4)
    return figure
