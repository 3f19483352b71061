"""The HTML report of the method comparison: all rows of results/comparison.csv, sortable."""

from html import escape

from comparison.evaluate import Records
from comparison.page import HEADINGS, recommendation, rows

NUMBERS = ("rmse_wh", "difference_wh", "low_wh", "high_wh", "corrected_p", "learning_rate")
STYLE = """
body { font: 14px/1.4 system-ui, sans-serif; margin: 1rem auto; max-width: 92rem; padding: 0 1rem }
input { font: inherit; padding: .4rem; width: 100%; box-sizing: border-box; margin: .5rem 0 }
.scroll { overflow-x: auto } table { border-collapse: collapse; width: 100% }
th { cursor: pointer; text-align: left; position: sticky; top: 0; background: #eef }
th, td { padding: .2rem .35rem; border-bottom: 1px solid #ddd; white-space: nowrap }
td.n { text-align: right; font-variant-numeric: tabular-nums }
"""
SCRIPT = """
const body = document.querySelector('tbody'), all = [...body.rows];
let order = 1, last = -1;
document.querySelectorAll('th').forEach((head, place) => head.onclick = () => {
  order = place === last ? -order : 1; last = place;
  const value = row => row.cells[place].textContent;
  all.sort((a, b) => {
    const [x, y] = [value(a), value(b)], [m, n] = [parseFloat(x), parseFloat(y)];
    if (head.dataset.n) return order * ((isNaN(m) ? Infinity : m) - (isNaN(n) ? Infinity : n) || 0);
    return order * x.localeCompare(y);
  });
  body.append(...all);
});
document.querySelector('input').oninput = event => {
  const words = event.target.value.toLowerCase().split(/\\s+/).filter(Boolean);
  for (const row of all) {
    const text = row.textContent.toLowerCase();
    row.hidden = !words.every(word => text.includes(word));
  }
};
"""


def report(records: Records) -> str:
    """Return the page: the recommendation, a filter and one table that sorts by any column."""
    numeric = [name in NUMBERS for name in HEADINGS]
    heads = "".join(
        f"<th{' data-n=1' if number else ''}>{escape(name)}</th>"
        for name, number in zip(HEADINGS, numeric, strict=True)
    )
    body = "\n".join(
        "<tr>"
        + "".join(
            f"<td{' class=n' if number else ''}>{escape(cell)} </td>"
            for cell, number in zip(row, numeric, strict=True)
        )
        + "</tr>"
        for row in rows(records)
    )
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Method comparison</title><style>{STYLE}</style><h1>Method comparison</h1>"
        f"<p>{escape(recommendation(records).replace('`', ''))} Differences are from FedAvg at "
        "equal seeds, Wh per window, with 95 % intervals; p is corrected for all methods of a "
        "partition and view.</p>"
        '<input placeholder="Filter rows: ved yes personalised rounds" aria-label="Filter rows">'
        f'<div class="scroll"><table><thead><tr>{heads}</tr></thead><tbody>\n{body}\n'
        f"</tbody></table></div><script>{SCRIPT}</script></html>\n"
    )
