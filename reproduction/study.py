"""Studies: a table or figure of the paper, the cells it needs, and how it shows them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from matplotlib.figure import Figure

from fedwatt.errors import RunError, SettingError, unknown
from fedwatt.report.table import ReportTable
from reproduction.cell import Cell
from reproduction.data import DATASETS, PLAIN, PRINTED_AS, RICH, Sources
from reproduction.record import Record
from reproduction.scale import Scale

if TYPE_CHECKING:
    from reproduction.lab import Lab

NOTHING: Final = "Nothing has run."
"""What stands in the place of a figure, and of what it was measured on, without any records."""


@dataclass(frozen=True)
class Setting:
    """Scale and datasets on which studies are carried out."""

    scale: Scale
    ved: tuple[str, ...]
    """Datasets that take the place of the paper's VED."""
    eved: tuple[str, ...]
    """Datasets that take the place of its eVED."""
    fleet: str
    """Where fleets of trucks, buses or more than ten vehicles come from."""

    @property
    def places(self) -> list[tuple[str, str]]:
        """Return (dataset of the paper, ours) pairs of studies with few cells.

        The paper's is empty for a dataset that only stands in for it: no printed number is one of
        it, and none is subtracted from its own.
        """
        return [(PRINTED_AS.get(dataset, ""), dataset) for dataset in (*self.ved, *self.eved)]

    @property
    def few_places(self) -> list[tuple[str, str]]:
        """Return the pairs of studies with many cells: one dataset in each place."""
        second = self.eved[:1] if self.scale.second_dataset else ()
        return [(PRINTED_AS.get(dataset, ""), dataset) for dataset in (*self.ved[:1], *second)]

    @property
    def table(self) -> dict[str, Any]:
        """Return what records keep of it; the scale stands beside them already."""
        return {
            "ved": list(self.ved),
            "eved": list(self.eved),
            "fleet": self.fleet,
        }


def setting_for(
    scale: Scale,
    sources: Sources,
    datasets: Sequence[str] = (),
) -> Setting:
    """Return the datasets that are there, or those asked for, in the places of the paper's two."""
    for name in datasets:
        if name not in DATASETS:
            raise SettingError(unknown("dataset", name, DATASETS))
    requested = tuple(dict.fromkeys(datasets))
    plain = tuple(d for d in requested if d in PLAIN)
    rich = tuple(d for d in requested if d in RICH)
    if requested and not plain:
        raise SettingError(
            f"{' and '.join(requested)} can only take the place of the paper's eVED. Name one in "
            f"the place of its VED as well: {', '.join(PLAIN)}."
        )
    if not requested:
        recorded = sources.has("ved")
        if scale.name == "smoke":
            plain = ("synthetic", "ved") if recorded else ("synthetic",)
            rich = ("synthetic-enriched",)
        else:
            plain = tuple(d for d in ("ved", "ved-electrified") if sources.has(d)) or ("synthetic",)
            rich = (*(d for d in ("eved", "ved-enriched") if sources.has(d)), "synthetic-enriched")
    driven = scale.name != "smoke" and sources.has("ved-electrified")
    fleet = "ved-electrified" if driven or plain == ("ved-electrified",) else "synthetic"
    return Setting(scale, plain, rich, fleet)


def setting_of(lab: "Lab") -> Setting:
    """Return the setting that a lab's records were made in."""
    if not lab.setting:
        raise RunError(f"{lab.records or lab.out} holds records that do not tell their setting.")
    table = lab.setting
    return Setting(lab.scale, tuple(table["ved"]), tuple(table["eved"]), str(table["fleet"]))


@dataclass(frozen=True)
class View:
    """The records of a lab as studies read them; nothing can be trained with it."""

    setting: Setting
    lab: "Lab"

    def get(self, cell: Cell) -> Record | None:
        """Return the record, if the cell has run."""
        return self.lab.get(cell)


@dataclass(frozen=True)
class Picture:
    """A figure, and how to read it."""

    name: str
    title: str
    figure: Figure
    caption: str
    facts: str


@dataclass(frozen=True)
class Block:
    """A table, and what its numbers were measured on."""

    table: ReportTable
    facts: str


@dataclass(frozen=True)
class Findings:
    """Tables, figures and remarks of a study."""

    blocks: tuple[Block, ...] = ()
    pictures: tuple[Picture, ...] = ()
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True)
class Study:
    """A table or figure of the paper."""

    name: str
    title: str
    """As the paper puts it."""
    cells: Callable[[Setting], Sequence[Cell]]
    show: Callable[[View], Findings]
    printed: tuple[str, ...] = ()
    """Names of the printed tables it stands beside."""
    claims: tuple[str, ...] = ()
