import warnings

import matplotlib
import numpy as np
import pytest
from matplotlib.figure import Figure

from fedwatt.report.figures.results import (
    FIGURES,
    convergence_figure,
    draw_curves,
    vehicles_figure,
)
from fedwatt.report.load import load_run, load_runs
from fedwatt.report.page import inline, saved
from fedwatt.report.statistics import Curves
from fedwatt.report.style import LOOKS, PARTS, looks, styled
from tests.report.conftest import VEHICLES, make_run, test_rmse_wh


@pytest.fixture(scope="module")
def run(run_folder):
    return load_run(run_folder)


def texts(figure: Figure) -> str:
    figure.draw_without_rendering()
    return " ".join(t.get_text() for t in figure.findobj(matplotlib.text.Text))


def lines(axes, method):
    return [line for line in axes.lines if line.get_gid() == f"series:{method}"]


@pytest.mark.parametrize("kind", FIGURES, ids=lambda kind: kind.name)
def test_every_figure_names_its_methods_or_parts(kind, run):
    output = texts(kind.draw(run))
    assert "FO-RI-FedAvg" in output
    assert kind.caption


def test_drawing_leaves_the_callers_style_alone(run):
    before = dict(matplotlib.rcParams)
    convergence_figure(run)
    assert dict(matplotlib.rcParams) == before


def test_names_in_any_script_are_drawn_without_a_warning():
    @styled
    def draw() -> Figure:
        figure = Figure()
        figure.text(0.5, 0.5, "日本 車 0")
        return figure

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figure = draw()
        assert "日本 車 0" in saved(figure).decode()
        saved(figure, "png")


def test_convergence_shows_means_of_finished_seeds_and_the_lost_one(run):
    axes, below = convergence_figure(run).axes
    mean, lost, cross = lines(axes, "fo-ri-fedavg")
    expected = np.mean([test_rmse_wh("fo-ri-fedavg", seed, 12) for seed in (1, 3)])
    assert mean.get_ydata()[12] == pytest.approx(expected)
    assert lost.get_xdata()[-1] == 16 and cross.get_marker() == "x"
    gap = lines(below, "fo-ri-fedavg")[0].get_ydata()
    assert gap[-1] < -1


def test_start_far_above_is_told_instead_of_shown(tmp_path):
    run = load_run(make_run(tmp_path / "run", methods=("fedavg",), seeds=(1,)))
    output = {}
    for start in (118.0, 62.0):
        axes = Figure().subplots()
        values = np.array([[start, 60.0, 58.0]])
        draw_curves(axes, run, lambda _, v=values: Curves(np.arange(3.0), v, (1,), {}))
        output[start] = (axes.get_ylim()[1], [text.get_text() for text in axes.texts])
    high, texts = output[118.0]
    assert high < 61 and "↑ starts at 118" in texts
    assert "↑ starts at 62" in output[62.0][1]


def test_single_method_has_no_difference(tmp_path):
    run = load_run(make_run(tmp_path / "run", methods=("fedavg",)))
    assert len(convergence_figure(run).axes) == 1


def test_different_data_have_no_difference(tmp_path):
    first = make_run(tmp_path / "day", methods=("fedavg",))
    second = make_run(
        tmp_path / "night", methods=("fedprox",), data_hash="ffff", vehicles_are="van"
    )
    run = load_runs([first, second])
    assert len(convergence_figure(run).axes) == 1
    # 20 vehicles each, none in both: the reference's come first, and every method has its marks.
    axes = vehicles_figure(run).axes[0]
    names = [label.get_text() for label in axes.get_yticklabels()]
    assert names[:20] == sorted(VEHICLES) and names[20] == "van-01"
    counts = [
        np.isfinite(np.ma.filled(m.get_offsets(), np.nan)[:, 0]).sum() for m in axes.collections
    ]
    assert counts == [20, 20]


def test_vehicles_are_sorted_by_the_reference(run):
    axes = vehicles_figure(run).axes[0]
    names = [label.get_text() for label in axes.get_yticklabels()]
    assert names == sorted(names) and len(names) == 20


def test_a_small_start_is_told_with_its_digits(run):
    axes = Figure().subplots()
    # The first value of a dispersion is 0.42, all others are near 0.1.
    curves = Curves(np.arange(4.0), np.array([[0.42, 0.101, 0.1, 0.1]]), (1,), {})
    draw_curves(axes, run, lambda method: curves)
    assert "↑ starts at 0.42" in [text.get_text() for text in axes.texts]


@pytest.mark.parametrize("kind", FIGURES, ids=lambda kind: kind.name)
def test_nothing_finished_is_still_a_figure(kind, tmp_path):
    diverges = {(m, s): 1 for m in ("fedavg", "fo-ri-fedavg") for s in (1, 2, 3)}
    run = load_run(make_run(tmp_path / "run", diverges=diverges))
    kind.draw(run).draw_without_rendering()


def test_files_are_the_same_every_time(run):
    first = convergence_figure(run)
    second = convergence_figure(run)
    assert saved(first) == saved(second)
    assert saved(first, "pdf") == saved(second, "pdf")


def test_inline_markup_follows_the_page(run):
    svg = saved(convergence_figure(run))
    markup = inline(svg, "convergence", 'Error "x"', {"#d55e00": "--method-fedavg"})
    assert markup.startswith("<svg viewBox=") and markup.rstrip().endswith("</svg>")
    assert 'aria-label="Error &quot;x&quot;"' in markup
    assert "var(--method-fedavg)" in markup and "#d55e00" not in markup
    assert 'data-series="fedavg"' in markup and "series:" not in markup
    assert "font-family: inherit" in markup and "DejaVu" not in markup


def test_methods_look_different():
    colours = [look.colour for look in (*LOOKS.values(), *PARTS.values())]
    assert len(set(colours)) == len(colours)
    assert len({look.marker for look in LOOKS.values()}) == len(LOOKS)
    styles = looks(["half rate", "fedavg", "fo-ri-fedavg"])
    assert styles["fedavg"] == LOOKS["fedavg"]
    assert styles["half rate"] not in (LOOKS["fedavg"], LOOKS["fo-ri-fedavg"])
