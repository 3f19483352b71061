"""The pages of a trip and of a route in a real browser, where one is installed."""

import re
import shutil
import subprocess

import pytest

from fedwatt.edge.energy_model import EnergyModel
from fedwatt.edge.export import export
from fedwatt.edge.trip_page import render
from fedwatt.edge.trips import Forecast, charge_over_time, estimate_range, predict_trip

from .test_elevation import elevation_field, located_vehicle
from .toys import trained

WIDTHS = (1280, 480, 360)
# Each width in a frame of its own; the title tells what the browser made of them.
FRAMES = """<!doctype html><title>waiting</title>{frames}<script>
onload = () => {{ document.title = "widths " + [...document.querySelectorAll("iframe")].map(f => {{
  const page = f.contentDocument, wide = page.documentElement.scrollWidth;
  const text = [...page.querySelectorAll("h1, h2, b, strong, dt")];
  return wide + "/" + text.filter(e => e.scrollWidth > e.clientWidth + 1).length
    + "/" + page.querySelectorAll("figure svg text").length; }}).join(" "); }};
</script>"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    program = shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("no Chromium to open the page in")
    flags = "--headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking"
    flags += " --disable-component-update --disable-sync --allow-file-access-from-files --dump-dom"
    profile = tmp_path_factory.mktemp("profile")

    def look(file):
        words = [program, *flags.split(), f"--user-data-dir={profile}", file.as_uri()]
        return subprocess.run(words, capture_output=True, text=True, timeout=120).stdout

    return look


@pytest.mark.parametrize("kind", ["trip", "empty battery", "trip over hills"])
def test_nothing_sticks_out_at_any_width(kind, model, browser, tmp_path):
    vehicle = located_vehicle()
    if kind == "trip over hills":
        run = trained(features="base, elevation")
        export(run, tmp_path / "hills.onnx", vehicle=vehicle, field=elevation_field())
        model = EnergyModel(tmp_path / "hills.onnx")
    prediction = predict_trip(model, vehicle.trips[0], vehicle.name)
    reach = estimate_range(prediction, 0.001, 20_000) if kind == "empty battery" else None
    charge = charge_over_time(prediction, 0.5, 20_000)
    page = render(Forecast(prediction.trip, "", model.card, prediction, reach, charge))
    (tmp_path / "page.html").write_text(page, encoding="utf-8")
    frames = "".join(
        f'<iframe src="page.html" style="border:0;width:{width}px;height:900px"></iframe>'
        for width in WIDTHS
    )
    (tmp_path / "frames.html").write_text(FRAMES.format(frames=frames), encoding="utf-8")
    title = re.search(r"<title>widths (.*?)</title>", browser(tmp_path / "frames.html"))
    assert title, "the browser did not run the page"
    seen = [tuple(map(int, part.split("/"))) for part in title[1].split()]
    # As wide as its frame (or less, by a scroll bar), no clipped text, and figures with labels.
    for width, (wide, clipped, labels) in zip(WIDTHS, seen, strict=True):
        assert width - 20 <= wide <= width and clipped == 0 and labels > 20
