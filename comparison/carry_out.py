"""One method on one dataset: tuned, trained with the seeds that count, fine-tuned per vehicle.

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

from comparison.candidates import CANDIDATES, Candidate
from comparison.costs import matched_rounds, multiples
from comparison.datasets import DATASETS, Dataset
from comparison.plan import Plan
from comparison.records import Record
from comparison.search import best_of, further, trials
from fedwatt.errors import SettingError
from fedwatt.evaluation import personalise
from fedwatt.federation import Federation, RoundRecord, State
from fedwatt.federation.evaluate import vehicle_errors
from fedwatt.federation.federation import train_side_by_side
from fedwatt.federation.loop import TrainingResult
from fedwatt.files import write_text
from fedwatt.methods import Method
from fedwatt.metrics import micro
from fedwatt.windows import Fleet

Settings = dict[str, Any]
CURVES = {
    "validation": "validation_rmse",
    "global": "test_rmse",
    "unseen": "held_out_rmse",
    "own": "personal_rmse",
    "unseen own": "personal_held_out_rmse",
}
"""What a record keeps of every evaluated round, and the column that it is from."""


@dataclass(frozen=True)
class PlannedRun:
    """A candidate on a dataset, by their names."""

    dataset: str
    candidate: str
    plan: Plan
    device: str = "auto"
    before: dict[str, Any] | None = None
    """An earlier record, whose trials are taken over, and whose result if its settings stay."""
    edge: float = inf
    """Rates from this one on are given up."""

    @property
    def name(self) -> str:
        """A name for files."""
        return f"{self.dataset} {self.candidate}".replace(" ", "_")


def carry_out(planned: PlannedRun, fleet: Fleet, folder: Path) -> None:
    """Write the record of a run to `folder`."""
    began = time.monotonic()
    dataset = DATASETS[planned.dataset]
    candidate = CANDIDATES[planned.candidate]
    table = _Work(dataset, candidate, planned.plan, fleet, planned.device, planned.edge)
    before = planned.before or {}
    tried = before.get("trials") or table.tried(trials(candidate, planned.plan.trials))
    while more := [
        trial for trial in further(tried, planned.plan) if trial["learning_rate"] < planned.edge
    ]:
        tried = [*tried, *table.tried(more)]
    record: dict[str, Any] = {
        "dataset": planned.dataset,
        "method": planned.candidate,
        "plan": asdict(planned.plan),
        "trials": tried,
        "data": fleet.data_hash(),
        "vehicles": sum(not client.held_out for client in fleet.clients),
    }
    best = best_of(tried)
    if best["score"] is not None:
        record = table.decided(before, record, best["settings"])
    on_gpu = torch.cuda.is_available() and planned.device != "cpu"
    record["device"] = torch.cuda.get_device_name() if on_gpu else "cpu"
    record["seconds"] = round(before.get("seconds", 0.0) + time.monotonic() - began, 1)
    write_text(folder / "record.json", json.dumps(record) + "\n")


@dataclass(frozen=True)
class _Work:
    """The training of one method on one dataset."""

    dataset: Dataset
    candidate: Candidate
    plan: Plan
    fleet: Fleet
    device: str
    edge: float

    def tried(self, settings_list: Sequence[Settings]) -> list[dict[str, Any]]:
        """Every trial with its score, Wh; None where it diverged or its settings were refused."""
        trials_done = []
        methods: dict[int, Method] = {}
        for place, settings in enumerate(settings_list):
            try:
                methods[place] = self.candidate.made(settings)
            except SettingError:  # a composition may refuse what each of its rules allows
                continue
        pairs = [
            (self._federation(settings_list[p], trial=True), method)
            for p, method in methods.items()
        ]
        trained = train_side_by_side(pairs) if pairs else []
        scores = dict(zip(methods, map(_score, trained), strict=True))
        for place, settings in enumerate(settings_list):
            trials_done.append({"settings": settings, "score": scores.get(place)})
        return trials_done

    def decided(self, before: Settings, record: Settings, chosen: Settings) -> dict[str, Any]:
        """Return the record with the result of the chosen settings, taken over where it is known.

        Whoever chose a rate beyond the range and diverged there, with any of the seeds that count,
        goes back to the best trial within the range; and so does whoever is beyond the edge.
        """
        inside = best_of(record["trials"][: self.plan.trials])["settings"]
        if chosen["learning_rate"] >= self.edge and chosen != inside:
            given_up = {"settings": chosen, "diverged": [], "edge": self.edge}
            if before.get("settings") == chosen:
                old = Record(self.dataset.name, self.candidate.name, before)
                given_up["errors"] = {view: old.errors(view) for view in ("global", "personalised")}
            return self.decided(before, record | {"given_up": given_up}, inside)
        unchanged = before.get("settings") == chosen
        result = before if unchanged else self.result(chosen)
        if result["diverged"] and chosen != inside:
            given_up = {"settings": chosen, "diverged": result["diverged"]}
            return self.decided(before, record | {"given_up": given_up}, inside)
        return before | record if unchanged else record | {"settings": chosen, **result}

    def result(self, settings: Settings) -> dict[str, Any]:
        """Errors with the seeds that count: by round, fine-tuned, and with stragglers."""
        method = self.candidate.made(settings)
        federation = self._federation(settings)
        costs = multiples(self.candidate, federation.model, self.plan, self.dataset.participation)
        matched = matched_rounds(costs, self.plan)
        due = set(matched.values())
        states = {}

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
                **{name: curve[-1:] for name, curve in _curves(slow, self.plan).items()},
            },
        }

    def _federation(
        self, settings: Mapping[str, Any], *, trial: bool = False, stragglers: bool = False
    ) -> Federation:
        training = self.plan.training(
            settings["learning_rate"], self.dataset.participation, trial=trial
        )
        return Federation(
            self.fleet,
            training=training,
            availability=self.plan.stragglers if stragglers else None,
            seeds=self.plan.tuning_seeds if trial else self.plan.seeds,
            device=self.device,
        )


def _score(trained: TrainingResult) -> float | None:
    """Mean validation error over seeds, Wh, of the models that vehicles drive with."""
    errors = trained.history.last("personal_validation_rmse").values()
    if bool(trained.state.diverged.any()) or not all(map(isfinite, errors)):
        return None
    return _rounded(sum(errors) / len(errors))


def _lost(federation: Federation, trained: TrainingResult) -> list[int]:
    """Seeds that diverged."""
    return [
        seed
        for seed, at in zip(federation.seeds, trained.state.diverged.tolist(), strict=True)
        if at
    ]


def _curves(trained: TrainingResult, plan: Plan) -> dict[str, list[dict[str, float | None]]]:
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
    """Seed → test error of fine-tuned models, Wh: of the vehicles that train, and of unseen."""
    vehicle_initial_models = (
        federation.personalised_models(method, state) if method.personalised else None
    )
    personalised = personalise(
        federation, state.weights, plan.personalised, initial=vehicle_initial_models
    )
    clients = federation.fleet.clients
    windows = federation.pool.test
    errors: dict[str, dict[str, float | None]] = {"test": {}, "unseen": {}}
    for run, seed in enumerate(federation.seeds):
        sums = vehicle_errors(clients, "test", windows, personalised.test[run])
        for name, held_out in (("test", False), ("unseen", True)):
            part = [
                vehicle_sums
                for vehicle_sums, c in zip(sums, clients, strict=True)
                if c.held_out == held_out
            ]
            errors[name][str(seed)] = _rounded(micro(part).rmse)
    return errors


def _rounded(value: float) -> float | None:
    """Wh to five digits, which is more than any difference that matters; None: not finite."""
    return float(f"{value:.5g}") if isfinite(value) else None
