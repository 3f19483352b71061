"""Error stage by stage: baselines, shared model, elevation, personalisation."""

from matplotlib.figure import Figure

from fedwatt.report import style
from fedwatt.report.load import Run
from fedwatt.report.stages import Stage, baseline_stages, federated_stages
from fedwatt.report.table import shown

MOST_METHODS = 4
"""With more methods, only the reference and the method with the lowest error are drawn."""
BAR_IN = 0.22
GAP_IN = 0.16


@style.styled
def stages_figure(run: Run) -> Figure:
    """Draw one bar for each stage and method, with its error at the end."""
    federated = federated_stages(run)
    methods = _drawn_methods(run, federated)
    stages = [*baseline_stages(run), *federated] if run.same_data else federated
    bars = [(stage, [m for m in stage.errors if m == "" or m in methods]) for stage in stages]
    count = sum(len(own) for _, own in bars)
    figure = Figure(figsize=(style.WIDTH_IN, 0.75 + BAR_IN * count + GAP_IN * len(bars)))
    axes = figure.subplots()
    if not count:
        style.note(axes, "No method has a finite error.")
        return figure
    appearance = style.looks(run.methods)
    depth = 0.0
    ticks = []
    named: set[str] = set()
    for stage, own in bars:
        ticks.append(depth + BAR_IN * len(own) / 2)
        for method in own:
            colour = appearance[method].colour if method else style.MUTED
            bar = axes.barh(
                depth + BAR_IN / 2, stage.errors[method], height=BAR_IN * 0.86, color=colour
            )[0]
            text = axes.annotate(
                shown(stage.errors[method], run.target.digits()),
                (stage.errors[method], depth + BAR_IN / 2),
                xytext=(4, 0),
                va="center",
            )
            text.set(anncoords="offset points", color=style.INK)
            if method:
                bar.set_gid(style.series(method))
                text.set_gid(style.series(method))
                if method not in named:
                    bar.set_label(style.name_of(method))
                    named.add(method)
            depth += BAR_IN
        depth += GAP_IN
    axes.set_yticks(ticks, [stage.name for stage, _ in bars])
    axes.set_ylim(depth - GAP_IN / 2, -GAP_IN / 2)
    axes.margins(x=0.12)
    axes.set_xlabel(f"test RMSE, {run.unit} per window")
    style.horizontal(axes)
    style.legend(figure, handlelength=0.9, handletextpad=0.4)
    return figure


def _drawn_methods(run: Run, stages: list[Stage]) -> list[str]:
    if len(run.methods) <= MOST_METHODS or not stages:
        return list(run.methods)
    last = stages[-1].errors
    return [run.reference, min(last, key=last.__getitem__)]
