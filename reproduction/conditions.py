"""Every method under other conditions: participation, vehicle types, networks, fleet sizes.

Methods run at the settings that tuning chose for them on the same kind of data; GRU
and LSTM, for which nothing was tuned, run at the paper's settings.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from reproduction.cell import Cell
from reproduction.draw import sweep
from reproduction.drift import SHARES
from reproduction.main_results import plain, tuned
from reproduction.record import REACH, Record
from reproduction.show import against, facts_line, matrix
from reproduction.study import Block, Findings, Picture, Setting, Study, View

KINDS = ("passenger", "truck", "bus")
KINDS_NOTE = {
    "ved-electrified": "VED has neither trucks nor buses: the same trips are driven by simulated "
    "ones, as the paper says it did.",
    "synthetic": "Every kind drives synthetic trips of its own; the paper says that it simulated "
    "trucks and buses on VED's trips.",
}
"""Fleets of trucks and buses → how they drive."""
NETWORKS = ("mlp", "gru", "lstm")
SIZES = (10, 50, 100, 175)

Grid = dict[str, list[Cell]]
"""Method → its cell in each regime"""


def best(setting: Setting, dataset: str, method: str) -> Cell:
    """Tuned, with the seeds of studies of many cells."""
    return replace(tuned(setting.scale, dataset, method), seeds=setting.scale.few_seeds)


def participation_grid(setting: Setting, dataset: str) -> Grid:
    """C from 0.1 to 0.5."""
    return {
        m: [replace(best(setting, dataset, m), participation=c) for c in SHARES]
        for m in setting.methods
    }


def kind_grid(setting: Setting, dataset: str) -> Grid:
    """Passenger cars, trucks and buses, ten each."""
    return {
        m: [replace(best(setting, dataset, m), kind=kind) for kind in KINDS]
        for m in setting.methods
    }


def network_grid(setting: Setting, dataset: str) -> Grid:
    """MLP, GRU and LSTM at the paper's settings."""
    return {
        m: [
            replace(
                plain(dataset, m),
                model=network,
                stride=setting.scale.recurrent_stride,
                rounds=setting.scale.recurrent_rounds,
                seeds=setting.scale.few_seeds,
            )
            for network in NETWORKS
        ]
        for m in setting.methods
    }


def size_grid(setting: Setting, dataset: str) -> Grid:
    """10 to 200 vehicles."""
    return {
        m: [replace(best(setting, dataset, m), vehicles=size) for size in SIZES]
        for m in setting.methods
    }


def device_grid(setting: Setting, dataset: str) -> Grid:
    """Equal computers, and those of FedEL's classes for everybody."""
    return {
        m: [replace(best(setting, dataset, m), slow=slow) for slow in (False, True)]
        for m in setting.methods
    }


def flat(grid: Grid) -> list[Cell]:
    """All cells of a grid."""
    return [cell for cells in grid.values() for cell in cells]


def records_of(view: View, grid: Grid) -> dict[str, list[Record | None]]:
    """The records of a grid's cells."""
    return {method: [view.get(cell) for cell in cells] for method, cells in grid.items()}


def was_run(view: View, grid: Callable[[Setting, str], Grid], dataset: str) -> bool:
    """Whether a dataset has a record of a grid that is not also one of the main results'."""
    cells = flat(grid(view.setting, dataset))
    usual = {best(view.setting, dataset, method) for method in view.setting.methods}
    return any(view.get(cell) is not None for cell in cells if cell not in usual)


def tables(
    view: View,
    name: str,
    title: str,
    regimes: Sequence[str],
    grid: Grid,
    *,
    rmse: Sequence[tuple[str, str] | None] | None = None,
    drift: Sequence[tuple[str, str] | None] | None = None,
    label: str,
    note: str = "",
) -> Findings:
    """RMSE and D_cv(200) of a grid beside the printed ones, and the paper's method against all."""
    records = records_of(view, grid)
    at = view.setting.scale.at(200)
    errors = {m: [r.final("test_rmse") if r else {} for r in own] for m, own in records.items()}
    spread = {
        m: [r.around("drift_cv", at, REACH) if r else {} for r in own] for m, own in records.items()
    }
    facts = facts_line([record for own in records.values() for record in own])
    ticks = [regime.rpartition("= ")[2] for regime in regimes]
    blocks = [
        matrix(
            f"{name}-rmse", f"{title}: RMSE", regimes, records, errors, unit="Wh", beside=rmse,
            note=note,
        ),
        matrix(
            f"{name}-drift", f"{title}: dispersion of drift D_cv(200)", regimes, records, spread,
            unit="", digits=3, beside=drift, note="Mean over the rounds around t = 200.",
        ),
        against(
            f"{name}-against", f"{title}: FO-RI-FedAvg against each method", regimes, errors,
            records,
        ),
    ]  # fmt: skip
    pictures = [
        Picture(
            f"{name}-rmse",
            f"{title}: RMSE",
            sweep(ticks, errors, "Final test RMSE, Wh per window", label),
            "Mean over seeds that did not diverge; bars are their standard deviation.",
            facts,
        ),
        Picture(
            f"{name}-drift",
            f"{title}: dispersion of drift",
            sweep(ticks, spread, "D_cv(200)", label),
            "Mean over seeds that did not diverge; bars are their standard deviation.",
            facts,
        ),
    ]
    return Findings(tuple(blocks), tuple(pictures))


def merged(parts: Sequence[Findings]) -> Findings:
    """What several datasets show, as one."""
    blocks: list[Block] = [block for part in parts for block in part.blocks]
    pictures = [picture for part in parts for picture in part.pictures]
    return Findings(tuple(blocks), tuple(pictures))


def show_participation(view: View) -> Findings:
    """RMSE and D_cv by C, on the first dataset in the place of VED and wherever it was run."""
    return merged(
        [
            tables(
                view,
                f"participation-{dataset}",
                f"Participation on {dataset}",
                [f"C = {c:g}" for c in SHARES],
                participation_grid(view.setting, dataset),
                label="participation C",
                note="The paper shows this in figures whose files are empty.",
            )
            for dataset in view.setting.ved
            if dataset == view.setting.ved[0] or was_run(view, participation_grid, dataset)
        ]
    )


def show_kinds(view: View) -> Findings:
    """RMSE and D_cv by kind of vehicle, on the setting's fleet and wherever else it was run."""
    names = [kind.capitalize() for kind in KINDS]
    return merged(
        [
            tables(
                view,
                f"vehicle-types-{dataset}",
                f"Vehicle types on {dataset}",
                names,
                kind_grid(view.setting, dataset),
                drift=None,
                label="kind of vehicle",
                note=note,
            )
            for dataset, note in KINDS_NOTE.items()
            if dataset == view.setting.fleet or was_run(view, kind_grid, dataset)
        ]
    )


def show_networks(view: View) -> Findings:
    """RMSE and MAE of the three networks."""
    blocks, pictures = [], []
    names = [network.upper() for network in NETWORKS]
    for place, dataset in view.setting.few_places:
        records = records_of(view, network_grid(view.setting, dataset))
        facts = facts_line([record for own in records.values() for record in own])
        for column, word in (("test_rmse", "RMSE"), ("test_mae", "MAE")):
            values = {m: [r.final(column) if r else {} for r in own] for m, own in records.items()}
            blocks.append(
                matrix(
                    f"architectures-{word.lower()}-{dataset}",
                    f"{word} across architectures on {dataset}",
                    names,
                    records,
                    values,
                    unit="Wh",
                    beside=[(f"architectures-{place.lower()}", f"{n} {word}") for n in names],
                    note="All methods at the paper's settings, rate 0.05 for all networks.",
                )
            )
            if word == "RMSE":
                pictures.append(
                    Picture(
                        f"architectures-{dataset}",
                        f"RMSE across architectures, {dataset}",
                        sweep(names, values, "Final test RMSE, Wh per window", "network"),
                        "Mean over seeds that did not diverge; bars are their standard deviation.",
                        facts,
                    )
                )
                blocks.append(
                    against(
                        f"architectures-against-{dataset}",
                        f"Architectures on {dataset}: FO-RI-FedAvg against each method",
                        names,
                        values,
                        records,
                    )
                )
    return Findings(tuple(blocks), tuple(pictures))


def show_sizes(view: View) -> Findings:
    """RMSE by the number of vehicles."""
    dataset = view.setting.fleet
    return tables(
        view,
        "scaling",
        f"Scaling with the number of clients on {dataset}",
        [f"K = {size}" for size in SIZES],
        size_grid(view.setting, dataset),
        label="vehicles K",
        note="The paper declares its own table estimated: it is its 10-client column times a "
        "constant, so no measurement stands beside these.",
    )


def few(
    grid: Callable[[Setting, str], Grid], *, first_only: bool = False
) -> Callable[[Setting], list[Cell]]:
    """The cells of a grid on the first dataset of each place, or of the first place only."""

    def cells(setting: Setting) -> list[Cell]:
        places = [own for _, own in setting.few_places]
        places = places[:1] if first_only else places
        return [cell for dataset in places for cell in flat(grid(setting, dataset))]

    return cells


PARTICIPATION = Study(
    "participation",
    "Sensitivity to participation C",
    few(participation_grid, first_only=True),
    show_participation,
    claims=("C1", "C5"),
)
DEVICES = Study(
    "devices",
    "Slow devices for every method, not for FedEL alone",
    few(device_grid, first_only=True),
    lambda view: tables(
        view,
        f"devices-{view.setting.ved[0]}",
        f"Device classes on {view.setting.ved[0]}",
        ["main results", "slow devices"],
        device_grid(view.setting, view.setting.ved[0]),
        label="computers",
        note="Slow: vehicles are as fast as a usual one, or a half, a third or a quarter of that, "
        "and send what they have when the usual one is done; FedEL trains the part of the network "
        "that fits into that time. In the main results FedEL alone has such devices, without which "
        "it is FedAvg.",
    ),
    claims=("C6",),
)
VEHICLE_TYPES = Study(
    "vehicle-types",
    "Vehicle types: passenger, truck and bus",
    lambda setting: flat(kind_grid(setting, setting.fleet)),
    show_kinds,
    printed=("vehicle-types-ved", "vehicle-types-eved"),
    claims=("C6",),
)
ARCHITECTURES = Study(
    "architectures",
    "Generalisation across neural architectures",
    few(network_grid),
    show_networks,
    printed=("architectures-ved", "architectures-eved"),
    claims=("C6",),
)
SCALING = Study(
    "scaling",
    "Scaling with the number of clients, 10 to 200",
    lambda setting: flat(size_grid(setting, setting.fleet)),
    show_sizes,
    printed=("scaling",),
    claims=("C7",),
)
