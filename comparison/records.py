"""The records of a comparison: a line of JSON for every run."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any, Final

from comparison.candidates import TWINS
from comparison.plan import Plan
from comparison.search import further
from fedwatt.errors import SettingError
from fedwatt.files import write_text

RECORDS: Final = Path(__file__).resolve().parents[1] / "results" / "comparison.jsonl"
VIEWS: Final = ("global", "personalised", "unseen", "unseen personalised", "stragglers")
"""What of a run is evaluated: the model for all vehicles, the fine-tuned one of each, both on
vehicles that never trained, and the model for all where some vehicles are slow."""


@dataclass(frozen=True, eq=False)
class Record:
    """The record of a run."""

    dataset: str
    method: str
    content: dict[str, Any]

    def errors(self, view: str, basis: str = "rounds") -> dict[int, float]:
        """Seed → test RMSE in Wh a window, at the round that `basis` pays for.

        Empty where the run has no such error: all trials diverged, or a seed of the result did.
        """
        content = self.content
        if "matched" not in content or content["diverged"]:
            return {}
        if view == "stragglers":
            slow = content["stragglers"]
            return {} if slow["diverged"] else _by_seed(slow["global"][-1])
        at = content["matched"][basis]
        if "personalised" in view:
            # Which rounds were fine-tuned was decided by the costs known when it was run.
            tuned = max((int(done) for done in content["tuned"] if int(done) <= at), default=0)
            part = "unseen" if "unseen" in view else "test"
            return _by_seed(content["tuned"][str(tuned)][part]) if tuned else {}
        return _by_seed(content["curves"][view][self._place(at)])

    def driven(self, *, stragglers: bool) -> dict[int, float]:
        """Seed → test RMSE of the models that vehicles drive with, before any fine-tuning."""
        content = self.content
        if "matched" not in content or content["diverged"] or content["stragglers"]["diverged"]:
            return {}
        return _by_seed((content["stragglers"] if stragglers else content["curves"])["own"][-1])

    def errors_given_up(self, view: str) -> dict[int, float]:
        """Return the errors at the rate that the candidate gave up without diverging there."""
        return _by_seed(self.content.get("given_up", {}).get("errors", {}).get(view, {}))

    @property
    def beyond(self) -> bool:
        """Return whether the result has a rate beyond the range."""
        return "settings" in self.content and self.content["settings"]["learning_rate"] > self._top

    @property
    def lost_at(self) -> float:
        """The lowest rate beyond the range at which a seed diverged, with stragglers or without."""
        content = self.content
        given_up = content.get("given_up", {})
        lost = [given_up["settings"]["learning_rate"]] if given_up.get("diverged") else []
        if self.beyond and (content["diverged"] or content["stragglers"]["diverged"]):
            lost.append(content["settings"]["learning_rate"])
        return min(lost, default=inf)

    def unfinished(self, limit: float) -> bool:
        """Return whether rates below `limit` have yet to be tried, since the highest tried is the
        best.
        """
        plan = Plan.of(self.content["plan"])
        return any(
            trial["learning_rate"] < limit for trial in further(self.content["trials"], plan)
        )

    @property
    def _top(self) -> float:
        within = self.content["trials"][: self.content["plan"]["trials"]]
        return float(max(trial["settings"]["learning_rate"] for trial in within))

    def _place(self, at: int) -> int:
        plan: dict[str, int] = self.content["plan"]
        return -(-at // min(plan["every"], plan["rounds"])) - 1


def _by_seed(values: dict[str, float | None]) -> dict[int, float]:
    return {int(seed): value for seed, value in values.items() if value is not None}


def edge(dataset: str, records: Mapping[tuple[str, str], Record]) -> float:
    """Return the rate from which on no candidate of a dataset may be: FedAvg, in whatever words,
    diverges.

    Whether a seed survives at such a rate is luck, so that methods of which none diverged would be
    compared with others that had to go back to a safer rate.
    """
    here = [record for (name, _), record in records.items() if name == dataset]
    edges = [record.content.get("given_up", {}).get("edge", inf) for record in here]
    return min(
        [*edges, *(record.lost_at for record in here if record.method in TWINS)], default=inf
    )


def gathered(cells: Path) -> list[dict[str, Any]]:
    """Return the records of all finished runs below a folder."""
    files = sorted(cells.glob("*/record.json"))
    return [json.loads(file.read_text(encoding="utf-8")) for file in files]


def write_records(file: Path, records: Iterable[dict[str, Any]]) -> None:
    """One line a run, in the order of their names; later ones take the place of earlier ones.

    All must have been run by one plan, or candidates would be compared that were not tuned alike.
    """
    records = list(records)
    for content in records:
        unlike = Plan.of(records[0]["plan"]).differences(Plan.of(content["plan"]))
        if unlike:
            raise SettingError(
                f"'{content['dataset']} {content['method']}' was run by another plan than the "
                f"others ({unlike}). Keep runs of another plan out of {file.name}."
            )
    by_name = {(content["dataset"], content["method"]): content for content in records}
    lines = [json.dumps(by_name[name], separators=(",", ":")) + "\n" for name in sorted(by_name)]
    write_text(file, "".join(lines))


def read_records(file: Path) -> dict[tuple[str, str], Record]:
    """(Dataset, candidate) → record; nothing where there is no file yet."""
    if not file.exists():
        return {}
    contents = map(json.loads, file.read_text(encoding="utf-8").splitlines())
    return {
        (content["dataset"], content["method"]): Record(
            content["dataset"], content["method"], content
        )
        for content in contents
    }
