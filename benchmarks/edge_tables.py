"""The tables of docs/edge.md, from what edge_ved.py measured."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.latency import Latency, spread
from benchmarks.marked import write_blocks
from fedwatt.report.style import name_of

PAGE = Path(__file__).parents[1] / "docs" / "edge.md"


def tables(found: dict[str, Any]) -> dict[str, str]:
    """Markdown of each table, by its name on the page."""
    return {
        "coverage": coverage(found["judged"]["federated"]),
        "trips": trips(found["judged"]),
        "agreement": table(
            "backbone|test windows|RMSE, Wh|scaled features|physical features to Wh",
            (
                f"{name.upper()}|{own['windows']:,}|{own['rmse_wh']:.1f}|"
                f"{own['worst_relative']['scaled features']:.1e}|"
                f"{own['worst_relative']['physical features']:.1e}"
                for name, own in found["agreement"].items()
                if name != "both"
            ),
        ),
        "agreement_hills": "In an MLP's file with hills the largest difference, from physical "
        f"features to Wh, is {found['agreement']['both']['hills']:.1e} for the network with hills "
        f"and {found['agreement']['both']['level']:.1e} for the level model.",
        "stream": table(
            "vehicle|test trips|windows|largest difference, Wh",
            (
                f"{name}|{own['trips']}|{own['windows']:,}|{own['worst_wh']:.1g}"
                for name, own in found["streams"]["stream"].items()
            ),
        ),
        "stream_hills": table(
            "vehicle|test trips|windows|without an open gap|largest difference there, Wh|"
            "RMSE, stream|RMSE, batch",
            (
                f"{name}|{own['trips']}|{own['windows']:,}|{own['settled'] / own['windows']:.1%}|"
                f"{own['worst_wh']:.1g}|{own['rmse_stream_wh']:.2f}|{own['rmse_batch_wh']:.2f}"
                for name, own in found["streams"]["stream_hills"].items()
            ),
        ),
        "forms": table(
            "form|file, kB|RMSE added, Wh|file with hills, kB|RMSE added, Wh",
            (
                f"{form}|{own['bytes'] / 1000:.0f}|{max(own['loss_wh'], key=abs):+.3f}|"
                f"{own['bytes_hills'] / 1000:.0f}|{max(own['loss_wh_hills'], key=abs):+.3f}"
                for form, own in found["forms"].items()
            ),
        ),
        "sizes": sizes(found["judged"]),
        "borne_out": borne_out(found["judged"]),
        "latency_hills": latency(found["latency_hills"], str),
        "latency": latency(found["latency"], str.upper),
        "methods": latency(found["methods"], name_of) + "\n\n" + same(found["methods"]),
        "memory": f"Peak memory of the process of a model with hills in a day of driving, "
        f"{found['memory']['seconds']:,} samples: {found['memory']['peak_mb']:.0f} MB; "
        f"{found['memory']['grown_mb']:.1f} MB more after the day than after its first hour.",
    }


def table(head: str, rows: Iterable[str]) -> str:
    """A Markdown table; cells are separated by bars, and all but the first are numbers."""
    columns = head.count("|")
    lines = [head.replace("|", " | "), "---" + "|--:" * columns]
    lines += [row.replace("|", " | ") for row in rows]
    return "\n".join(f"| {line} |" if "--:" not in line else f"|{line}|" for line in lines)


def coverage(judged: dict[str, Any]) -> str:
    rows = [
        f"{name}|{own['test_trips']}|{own['calibration_trips']}"
        f"{'' if own['calibrated_on'] == 'validation trips' else ' *'}|{own['rmse_wh']:.1f}|"
        f"{own['windows_covered']:.1%}|±{own['window_width_wh'] / 2:.0f}|"
        f"{own['trips_covered']:.0%}|±{own['trip_width_wh'] / 2:.0f}"
        for name, own in judged.items()
    ]
    rmse, windows, whole = (
        mean(judged, what) for what in ("rmse_wh", "windows_covered", "trips_covered")
    )
    rows.append(f"**mean of vehicles**|||{rmse:.1f}|**{windows:.1%}**||**{whole:.1%}**|")
    return table(
        "vehicle|test trips|calibration trips|RMSE, Wh|windows covered|width, Wh|trips covered|"
        "width, Wh",
        rows,
    )


def trips(judged: dict[str, dict[str, Any]]) -> str:
    rows, medians = [], {}
    for kind, by in judged.items():
        errors = np.concatenate([own["trip_errors_percent"] for own in by.values()])
        each = np.mean([np.median(own["trip_errors_percent"]) for own in by.values()])
        medians[kind] = float(np.median(errors))
        rows.append(
            f"{kind}|{len(errors)}|{medians[kind]:.1f} %|{each:.1f} %|{mean(by, 'rmse_wh'):.1f}|"
            f"{mean(by, 'windows_covered'):.1%}|{lowest(by):.1%}|{mean(by, 'trips_covered'):.1%}"
        )
    made = table(
        "model|test trips of 2 km or more|median trip error|mean of vehicles' medians|"
        "window RMSE, Wh|windows covered|lowest vehicle|trips covered",
        rows,
    )
    level = [kind for kind in ("federated", "local-only", "pooled") if kind in medians]
    order = sorted(level, key=medians.__getitem__)
    best = min(medians, key=medians.__getitem__)
    ranking = f"Without hills and fine-tuning the order by median trip error is {', '.join(order)}"
    return f"{made}\n\n{ranking}; of all models {best} has the smallest."


def lowest(by: dict[str, dict[str, float]]) -> float:
    """The share of windows covered in the vehicle that fares worst."""
    return min(own["windows_covered"] for own in by.values())


def sizes(judged: dict[str, dict[str, Any]]) -> str:
    """What a field adds to the file."""
    plain, hills = (
        [own["file_bytes"] / 1000 for own in judged[kind].values()]
        for kind in ("federated", "federated, hills")
    )
    return (
        f"On VED the file has {max(plain):.0f} kB without hills and {min(hills):.0f} to "
        f"{max(hills):.0f} kB with them."
    )


def borne_out(judged: dict[str, dict[str, Any]]) -> str:
    """In how many vehicles hills are used, and for how many windows."""
    parts = []
    for kind, of in (("federated, hills", "global"), ("federated, hills, fine-tuned", "own")):
        by = judged[kind].values()
        used = [own["by_hills"] for own in by if own["borne_out"]]
        parts.append(
            f"with {of} models in {len(used)} of {len(by)} vehicles, for {np.mean(used):.1%} of "
            "their test windows (mean of vehicles)"
        )
    return f"On VED hills are borne out and used {'; '.join(parts)}."


def mean(by: dict[str, Any], what: str) -> float:
    return float(np.mean([own[what] for own in by.values()]))


def latency(rows: Sequence[dict[str, Any]], name: Callable[[str], str]) -> str:
    """One line for a model: batch 1 and 32 in both engines."""
    by: dict[str, dict[tuple[str, int], dict[str, Any]]] = {}
    for row in rows:
        by.setdefault(row["model"], {})[row["engine"], row["batch"]] = row
    lines = []
    for model, own in by.items():
        order = [own[engine, batch] for batch in (1, 32) for engine in ("PyTorch", "onnxruntime")]
        cells = "|".join(f"{cell['median_us']:.1f} ({cell['p95_us']:.1f})" for cell in order)
        fewest = min(cell["windows"] for cell in order)
        throughput = 1e6 / own["onnxruntime", 32]["median_us"]
        lines.append(f"{name(model)}|{cells}|{throughput:,.0f}|{fewest:,}")
    return table(
        "model|batch 1, PyTorch|batch 1, onnxruntime|batch 32, PyTorch|batch 32, onnxruntime|"
        "windows/s|windows timed, at least",
        lines,
    )


def same(rows: Sequence[dict[str, Any]]) -> str:
    """Whether the methods differ by more than one model differs from itself."""
    found = [Latency(**row) for row in rows]
    parts = []
    for batch in (1, 32):
        between, within = spread(found, "onnxruntime", batch)
        parts.append(f"{between:.1%} at batch {batch}, where one model varies by {within:.1%}")
    return (
        "Standard deviation between the methods' medians in onnxruntime, beside that of one "
        f"model's medians in the course of the run: {'; '.join(parts)}."
    )


def write_tables(found: dict[str, Any]) -> None:
    """Put every table between its marks on the page."""
    write_blocks(PAGE, tables(found))
