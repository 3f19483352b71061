"""One entry on one arena: tuned, trained with the seeds that count, fine-tuned in every vehicle.

Trials share a stack, whatever their settings. They are scored by validation error after the last
round, of the vehicles' own models where the method gives them one; test windows are never looked
at before the settings are chosen.
"""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from math import inf, isfinite
from pathlib import Path
from typing import Any

import torch

from comparison.costs import matched_rounds, multiples
from comparison.entries import ENTRIES, Entry
from comparison.fleets import ARENAS, Arena
from comparison.plan import Plan
from comparison.records import Record
from comparison.search import best_of, further, trials
from fedwatt.errors import SettingError
from fedwatt.evaluation import personalise
from fedwatt.federation import Federation, RoundRecord, State
from fedwatt.federation.evaluate import vehicle_errors
from fedwatt.federation.loop import Trained
from fedwatt.federation.together import train_side_by_side
from fedwatt.files import write_text
from fedwatt.methods import Method
from fedwatt.metrics import micro
from fedwatt.windows import Fleet

Settings = dict[str, Any]
CURVES = {
    "validation": "validation_rmse",
    "global": "test_rmse",
    "newcomers": "held_out_rmse",
    "own": "personal_rmse",
    "newcomers own": "personal_held_out_rmse",
}
"""What a record keeps of every evaluated round, and the column that it is from."""


@dataclass(frozen=True)
class Match:
    """An entry on an arena, by their names."""

    arena: str
    entry: str
    plan: Plan
    device: str = "auto"
    before: dict[str, Any] | None = None
    """An earlier record, whose trials are taken over, and whose result if its settings stay."""
    edge: float = inf
    """Rates from this one on are given up."""

    @property
    def name(self) -> str:
        """A name for files."""
        return f"{self.arena} {self.entry}".replace(" ", "_")


def play(match: Match, fleet: Fleet, folder: Path) -> None:
    """Write the record of a match to `folder`."""
    began, arena, entry = time.monotonic(), ARENAS[match.arena], ENTRIES[match.entry]
    table = _Table(arena, entry, match.plan, fleet, match.device, match.edge)
    before = match.before or {}
    tried = before.get("trials") or table.tried(trials(entry, match.plan.trials))
    while more := [one for one in further(tried, match.plan) if one["rate"] < match.edge]:
        tried = [*tried, *table.tried(more)]
    record: dict[str, Any] = {
        "arena": match.arena,
        "entry": match.entry,
        "plan": asdict(match.plan),
        "trials": tried,
        "data": fleet.data_hash(),
        "vehicles": sum(not client.held_out for client in fleet.clients),
    }
    best = best_of(tried)
    if best["score"] is not None:
        record = table.decided(before, record, best["settings"])
    on_gpu = torch.cuda.is_available() and match.device != "cpu"
    record["device"] = torch.cuda.get_device_name() if on_gpu else "cpu"
    record["seconds"] = round(before.get("seconds", 0.0) + time.monotonic() - began, 1)
    write_text(folder / "record.json", json.dumps(record) + "\n")


@dataclass(frozen=True)
class _Table:
    """Where a match is played."""

    arena: Arena
    entry: Entry
    plan: Plan
    fleet: Fleet
    device: str
    edge: float

    def tried(self, wanted: Sequence[Settings]) -> list[dict[str, Any]]:
        """Every trial with its score, Wh; None where it diverged or its settings were refused."""
        found = []
        methods: dict[int, Method] = {}
        for place, settings in enumerate(wanted):
            try:
                methods[place] = self.entry.made(settings)
            except SettingError:  # a composition may refuse what each of its rules allows
                continue
        pairs = [(self._federation(wanted[p], trial=True), own) for p, own in methods.items()]
        trained = train_side_by_side(pairs) if pairs else []
        scores = dict(zip(methods, map(_score, trained), strict=True))
        for place, settings in enumerate(wanted):
            found.append({"settings": settings, "score": scores.get(place)})
        return found

    def decided(self, before: Settings, record: Settings, chosen: Settings) -> dict[str, Any]:
        """The record with the result of the chosen settings, taken over where it is known.

        Whoever chose a rate beyond the range and diverged there, with any of the seeds that count,
        goes back to the best trial within the range; and so does whoever is beyond the edge.
        """
        inside = best_of(record["trials"][: self.plan.trials])["settings"]
        if chosen["rate"] >= self.edge and chosen != inside:
            given_up = {"settings": chosen, "diverged": [], "edge": self.edge}
            if before.get("settings") == chosen:
                old = Record(self.arena.name, self.entry.name, before)
                given_up["errors"] = {view: old.errors(view) for view in ("global", "personal")}
            return self.decided(before, record | {"given_up": given_up}, inside)
        known = before.get("settings") == chosen
        result = before if known else self.result(chosen)
        if result["diverged"] and chosen != inside:
            given_up = {"settings": chosen, "diverged": result["diverged"]}
            return self.decided(before, record | {"given_up": given_up}, inside)
        return before | record if known else record | {"settings": chosen, **result}

    def result(self, settings: Settings) -> dict[str, Any]:
        """Errors with the seeds that count: by round, fine-tuned, and with stragglers."""
        method = self.entry.made(settings)
        federation = self._federation(settings)
        costs = multiples(self.entry, federation.model, self.plan, self.arena.participation)
        matched = matched_rounds(costs, self.plan)
        due, states = set(matched.values()), {}

        def keep(state: State, record: RoundRecord) -> None:
            if state.round in due:
                states[state.round] = state

        trained = federation.train(method, on_round=keep)
        slow = self._federation(settings, stragglers=True).train(method)
        return {
            "costs": asdict(costs),
            "matched": matched,
            "diverged": _lost(federation, trained),
            "curves": _curves(trained, self.plan),
            "tuned": {
                at: _fine_tuned(federation, method, state, self.plan)
                for at, state in states.items()
            },
            "stragglers": {
                "diverged": _lost(federation, slow),
                **{name: own[-1:] for name, own in _curves(slow, self.plan).items()},
            },
        }

    def _federation(
        self, settings: Mapping[str, Any], *, trial: bool = False, stragglers: bool = False
    ) -> Federation:
        training = self.plan.training(settings["rate"], self.arena.participation, trial=trial)
        return Federation(
            self.fleet,
            training=training,
            availability=self.plan.stragglers if stragglers else None,
            seeds=self.plan.tuning_seeds if trial else self.plan.seeds,
            device=self.device,
        )


def _score(trained: Trained) -> float | None:
    """Mean validation error over seeds, Wh, of the models that vehicles drive with."""
    found = trained.history.last("personal_validation_rmse").values()
    if bool(trained.state.diverged.any()) or not all(map(isfinite, found)):
        return None
    return _rounded(sum(found) / len(found))


def _lost(federation: Federation, trained: Trained) -> list[int]:
    """Seeds that diverged."""
    return [
        seed
        for seed, at in zip(federation.seeds, trained.state.diverged.tolist(), strict=True)
        if at
    ]


def _curves(trained: Trained, plan: Plan) -> dict[str, list[dict[str, float | None]]]:
    """Seed → error of every evaluated round, Wh, by what of it."""
    rows = {(row["round"], row["seed"]): row for row in trained.history.rounds if row["evaluated"]}
    return {
        name: [
            {
                str(seed): _rounded(rows[at, seed][column])
                for seed in plan.seeds
                if (at, seed) in rows
            }
            for at in plan.evaluated
        ]
        for name, column in CURVES.items()
    }


def _fine_tuned(
    federation: Federation, method: Method, state: State, plan: Plan
) -> dict[str, dict[str, float | None]]:
    """Seed → test error of fine-tuned models, Wh: of the vehicles that train, and of newcomers."""
    own = federation.own_models(method, state) if method.personal else None
    found = personalise(federation, state.weights, plan.personal, own_models=own)
    clients, windows = federation.fleet.clients, federation.pool.test
    errors: dict[str, dict[str, float | None]] = {"test": {}, "newcomers": {}}
    for run, seed in enumerate(federation.seeds):
        sums = vehicle_errors(clients, "test", windows, found.test[run])
        for name, held_out in (("test", False), ("newcomers", True)):
            part = [one for one, c in zip(sums, clients, strict=True) if c.held_out == held_out]
            errors[name][str(seed)] = _rounded(micro(part).rmse)
    return errors


def _rounded(value: float) -> float | None:
    """Wh to five digits, which is more than any difference that matters; None: not finite."""
    return float(f"{value:.5g}") if isfinite(value) else None
