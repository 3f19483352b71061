"""The tables and sentences of docs/edge.md, from what edge_ved.py measured."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.marked import write_blocks

PAGE = Path(__file__).parents[1] / "docs" / "edge.md"


def tables(record: dict[str, Any]) -> dict[str, str]:
    """Return the Markdown of each block, by its name on the page."""
    return {
        "agreement": agreement(record["agreement"]),
        "forms": table(
            "dtype|file, kB|RMSE added, Wh|file with elevation, kB|RMSE added, Wh",
            (
                f"{form}|{row['bytes'] / 1000:.0f}|{max(row['loss_wh'], key=abs):+.3f}|"
                f"{row['bytes_hills'] / 1000:.0f}|{max(row['loss_wh_hills'], key=abs):+.3f}"
                for form, row in record["forms"].items()
            ),
        ),
        "stream": streams(record["streams"]),
        "trips": trips(record["evaluated"]),
        "latency": latency([*record["latency"], *record["latency_hills"]]),
        "memory": "Peak memory of the process, model with elevation, one day of driving "
        f"({record['memory']['seconds']:,} samples): {record['memory']['peak_mb']:.0f} MB, "
        f"{record['memory']['grown_mb']:.1f} MB more than after the first hour.",
    }


def table(head: str, rows: Iterable[str]) -> str:
    """Return a Markdown table; cells are separated by bars, all but the first are numbers."""
    columns = head.count("|")
    lines = [head.replace("|", " | "), "---" + "|--:" * columns]
    lines += [row.replace("|", " | ") for row in rows]
    return "\n".join(f"| {line} |" if "--:" not in line else f"|{line}|" for line in lines)


def agreement(record: dict[str, Any]) -> str:
    """Return the largest difference between PyTorch and onnxruntime as a sentence."""
    worst = max(max(row["worst_relative"].values()) for row in record.values())
    names = ", ".join(name.upper() for name in record)
    windows = max(row["windows"] for row in record.values())
    return (
        f"Over {windows:,} VED test windows, predictions of onnxruntime and PyTorch ({names}) "
        f"differ by at most {worst:.0e} of the prediction or of the label's standard deviation, "
        "whichever is larger."
    )


def streams(record: dict[str, dict[str, Any]]) -> str:
    """Return how far a stream of rows differs from the batch pipeline, as sentences."""
    plain = record["stream"].values()
    climbing = record["stream_hills"].values()
    worst = max(row["worst_wh"] for row in plain)
    settled = min(row["settled"] / row["windows"] for row in climbing)
    added = max(row["rmse_stream_wh"] - row["rmse_batch_wh"] for row in climbing)
    return (
        f"Raw VED test trips of {len(plain)} vehicles "
        f"({sum(row['windows'] for row in plain):,} windows), fed row by row, differ from the "
        f"batch pipeline by at most {worst:.1g} Wh. With elevation the same holds for at least "
        f"{settled:.1%} of each vehicle's windows; the others end where the elevation is not known "
        f"yet, which adds at most {added:.2f} Wh to the RMSE."
    )


def trips(evaluated: dict[str, dict[str, Any]]) -> str:
    """Return the errors of trips and windows, one row per model."""
    rows = []
    for model, by in evaluated.items():
        errors = np.concatenate([row["trip_errors_percent"] for row in by.values()])
        rows.append(
            f"{model.replace('hills', 'elevation')}|{np.median(errors):.1f} %|"
            f"{mean(by, 'rmse_wh'):.1f}|{mean(by, 'windows_covered'):.1%}|{lowest(by):.1%}|"
            f"{mean(by, 'trips_covered'):.1%}"
        )
    head = "model|median trip error|window RMSE, Wh|windows covered|lowest vehicle|trips covered"
    return f"{table(head, rows)}\n\n{len(errors)} test trips of at least 2 km."


def lowest(by: dict[str, dict[str, float]]) -> float:
    """Return the smallest share of windows covered in any vehicle."""
    return min(row["windows_covered"] for row in by.values())


def mean(by: dict[str, Any], column: str) -> float:
    """Return the mean of a column over vehicles."""
    return float(np.mean([row[column] for row in by.values()]))


NAMES = {
    "mlp": "MLP",
    "gru": "GRU",
    "lstm": "LSTM",
    "MLP with hills": "MLP, elevation",
}


def latency(rows: Sequence[dict[str, Any]]) -> str:
    """Return one line per model: batch 1 and 32 in both engines."""
    by: dict[str, dict[tuple[str, int], dict[str, Any]]] = {}
    for row in rows:
        by.setdefault(row["model"], {})[row["engine"], row["batch"]] = row
    lines = []
    for model, cells in by.items():
        order = [cells[engine, batch] for batch in (1, 32) for engine in ("PyTorch", "onnxruntime")]
        times = "|".join(f"{cell['median_us']:.1f} ({cell['p95_us']:.1f})" for cell in order)
        lines.append(f"{NAMES[model]}|{times}")
    head = "model|batch 1, PyTorch|batch 1, onnxruntime|batch 32, PyTorch|batch 32, onnxruntime"
    return table(head, lines)


def write_tables(record: dict[str, Any]) -> None:
    """Put every block between its marks on the page."""
    write_blocks(PAGE, tables(record))
