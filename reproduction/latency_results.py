"""Inference latency of each method's network beside the printed one."""

from fedwatt.report.style import name_of
from fedwatt.report.table import Cell as Entry
from fedwatt.report.table import ReportTable, TableColumn
from reproduction.cell import Cell
from reproduction.paper import printed
from reproduction.show import facts_line, printed_text
from reproduction.study import Block, Findings, Setting, Study, View


def latency_cells(setting: Setting) -> list[Cell]:
    """Return the network of each dataset's features."""
    return [Cell(dataset=d, method="fedavg", work="latency") for _, d in setting.places]


def show_latency(view: View) -> Findings:
    """Return latency and throughput of a forward pass."""
    blocks = []
    for place, dataset in view.setting.places:
        record = view.get(Cell(dataset=dataset, method="fedavg", work="latency"))
        latencies = record.facts["latency"] if record else []
        for batch in (1, 32):
            rows: list[tuple[Entry, ...]] = []
            for latency in latencies:
                if latency["batch"] == batch and latency["method"] in view.setting.methods:
                    theirs = printed("latency").entry(latency["method"], f"{place} median")
                    speed = printed("latency").entry(latency["method"], f"{place} throughput")
                    row: list[Entry] = [
                        name_of(latency["method"]),
                        latency["median_ms"],
                        latency["p95_ms"],
                        round(latency["throughput"]),
                    ]
                    if batch == 32:
                        row += [printed_text(theirs), printed_text(speed)]
                    rows.append(tuple(row))
            columns = [
                TableColumn("Method"),
                TableColumn("Median", "ms/window", 4),
                TableColumn("p95", "ms/window", 4),
                TableColumn("Throughput", "windows/s", 0),
            ]
            if batch == 32:
                columns += [
                    TableColumn("Median, printed", "ms"),
                    TableColumn("Throughput, printed", "1/s"),
                ]
            blocks.append(
                Block(
                    ReportTable(
                        f"latency-{batch}-{dataset}",
                        f"Inference latency at batch size {batch}, {dataset}",
                        tuple(columns),
                        tuple(rows),
                        "One CPU thread, no gradients, warm-up discarded. Every method deploys the "
                        "same network, so differences are noise.",
                    ),
                    facts_line([record]),
                )
            )
    return Findings(tuple(blocks))


LATENCY = Study(
    "latency",
    "Inference latency at batch sizes 1 and 32",
    latency_cells,
    show_latency,
    printed=("latency",),
    claims=("C3",),
)
