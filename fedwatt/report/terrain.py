"""The map of a field as a picture, or as one page that pans and zooms without any network."""

from base64 import b64encode
from io import BytesIO
from pathlib import Path
from typing import Final

import matplotlib

from fedwatt.errors import SettingError
from fedwatt.report.figures.terrain import terrain_figure
from fedwatt.report.style import STYLE
from fedwatt.report.svg import to_pdf, to_svg
from fedwatt.terrain import Field

DPI: Final = 220

PAGE: Final = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Learned hills</title>
<style>
html, body {{ margin: 0; height: 100%; overflow: hidden; background: #fefefe; }}
body {{ font: 14px system-ui, sans-serif; color: #1f2429; touch-action: none; }}
img {{ transform-origin: 0 0; height: 100vh; cursor: grab; user-select: none; }}
p {{ position: fixed; left: 1em; bottom: 0; background: #fefefed0; padding: .2em .6em; }}
</style>
<img alt="Shaded relief of the learned hills, and how often each place was driven"
 draggable="false" src="data:image/png;base64,{image}">
<p>Drag to move, scroll or + and - to zoom, 0 to start again.</p>
<script>
const map = document.querySelector("img"), held = new Map();
let x = 0, y = 0, zoom = 1;
const draw = () => map.style.transform = `translate(${{x}}px,${{y}}px) scale(${{zoom}})`;
const scale = (factor, px, py) => {{
  const next = Math.min(Math.max(zoom * factor, 0.5), 20);
  x = px - (px - x) * next / zoom; y = py - (py - y) * next / zoom; zoom = next; draw();
}};
addEventListener("wheel", e => {{ e.preventDefault(); scale(Math.exp(-e.deltaY / 400), e.clientX,
  e.clientY); }}, {{ passive: false }});
addEventListener("pointerdown", e => held.set(e.pointerId, e));
for (const end of ["pointerup", "pointercancel"]) addEventListener(end,
  e => held.delete(e.pointerId));
addEventListener("pointermove", e => {{
  const before = held.get(e.pointerId);
  if (!before) return;
  if (held.size === 1) {{
    x += e.clientX - before.clientX; y += e.clientY - before.clientY; draw();
  }}
  if (held.size === 2) {{
    const other = [...held.values()].find(p => p.pointerId !== e.pointerId);
    const far = p => Math.hypot(p.clientX - other.clientX, p.clientY - other.clientY);
    scale(far(e) / Math.max(far(before), 1), other.clientX, other.clientY);
  }}
  held.set(e.pointerId, e);
}});
addEventListener("keydown", e => {{
  if (e.key === "0") {{ x = y = 0; zoom = 1; draw(); }}
  if (e.key === "+" || e.key === "=") scale(1.3, innerWidth / 2, innerHeight / 2);
  if (e.key === "-") scale(1 / 1.3, innerWidth / 2, innerHeight / 2);
}});
</script></html>
"""


def write_map(field: Field, out: Path) -> None:
    """Draw a field into a .png, .svg or .pdf file, or an .html page that pans and zooms."""
    kinds = (".png", ".svg", ".pdf", ".html")
    if out.suffix not in kinds:
        raise SettingError(
            f"A map is written to a file that ends in {', '.join(kinds)}, not {out}."
        )
    figure = terrain_figure(field)
    out.parent.mkdir(parents=True, exist_ok=True)
    if out.suffix == ".svg":
        out.write_bytes(to_svg(figure))
        return
    if out.suffix == ".pdf":
        out.write_bytes(to_pdf(figure))
        return
    drawn = BytesIO()
    with matplotlib.rc_context(STYLE):
        figure.savefig(drawn, format="png", dpi=DPI)
    if out.suffix == ".html":
        image = b64encode(drawn.getvalue()).decode()
        out.write_text(PAGE.format(image=image), encoding="utf-8")
    else:
        out.write_bytes(drawn.getvalue())
