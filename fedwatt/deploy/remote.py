"""The federation on the server's side: it asks vehicles where a simulation would train them.

Who takes part, how replies become the next model, what is recorded and which model is best are
`Federation`'s own lines. This file replaces local work and evaluation by questions.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from math import inf, nan
from secrets import randbits
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedwatt.data import Fleet
from fedwatt.deploy.alone import BROADCAST, sizes_of, uploads_of
from fedwatt.deploy.exchange import Answer
from fedwatt.deploy.messages import DIAGNOSTICS, SUMS, Content, Value
from fedwatt.deploy.roster import Roster
from fedwatt.deploy.state import RunState
from fedwatt.deploy.sums import from_array
from fedwatt.engine.call import Call
from fedwatt.errors import DataError
from fedwatt.federation import Federation, History, RoundRecord, State
from fedwatt.federation.memory import Table
from fedwatt.federation.participation import BoolArray
from fedwatt.federation.records import Evaluation, Row, error_columns
from fedwatt.federation.work import Work, enough, no_work
from fedwatt.methods import Method
from fedwatt.metrics import ErrorSums, Stopwatch
from fedwatt.runs.config import MethodChoice, RunConfig
from fedwatt.runs.level import LEVEL

log = logging.getLogger("fedwatt.deploy")

LEAST_ACCUMULATION = 0.01
"""Least ‖a_k‖₁: the last gradient counts in full, so 1 but for a pull of nearly twice the rate."""


class RemoteFederation(Federation):
    """A federation whose vehicles are elsewhere."""

    def __init__(
        self,
        roster: Roster,
        config: RunConfig,
        choice: MethodChoice,
        run: RunState,
        text: str,
        level: NDArray[Any] | None = None,
    ) -> None:
        """`level` [D] is the level model that vehicles have beside this one, if any."""
        fleet = roster.fleet(config.data)
        super().__init__(
            fleet,
            config.model.on(fleet),
            training=choice.training(config.training),
            availability=config.availability,
            seeds=config.seeds,
            device=config.device,
        )
        self.roster, self.terms, self.choice = roster, config.deploy, choice
        self.secure, self.run_state, self.level = config.secure, run, level
        self.common: dict[str, Value] = {"run": run.run, "label": choice.label, "config": text}
        if roster.provision is not None:
            self.common |= roster.provision.question_values
        self.secret = randbits(62)
        self.rows: dict[str, list[Row]] = {}
        """Errors by stratum of models that vehicles were asked about."""
        self.counted: dict[str, int] = {}
        """The last round in which each vehicle's reply counted."""
        self.last_validation: dict[str, ErrorSums] = {}
        """What each vehicle last said of a model."""
        self.joined = False
        """Whether the last model was judged by a vehicle that had judged none before."""

    def see(self, fleet: Fleet) -> None:
        """Go on with the vehicles that are in `fleet` now."""
        self.fleet = fleet
        self.population = np.array([not c.held_out for c in fleet.clients]).nonzero()[0]
        for known in ("population_windows", "evaluated"):
            self.__dict__.pop(known, None)

    def start(self, method: Method) -> tuple[State, RoundRecord]:
        """The initial model, judged by all vehicles that are there."""
        self.roster.refresh()
        self.see(self.roster.fleet(self.fleet.settings))
        return super().start(method)

    def advance(self, method: Method, state: State) -> tuple[State, RoundRecord]:
        """One round with the vehicles that are there now."""
        self.roster.refresh()
        self.see(self.roster.fleet(self.fleet.settings))
        available = torch.from_numpy(np.stack(self._first_available()))
        after, record = super().advance(method, replace(state, available=available))
        self.counted |= {row["vehicle"]: state.round for row in record.clients if row["replied"]}
        for row in record.clients:
            if row["steps"] and not row["replied"]:
                self.roster.unanswered(row["vehicle"])
        return after, record

    def resume(self, history: History) -> None:
        """Whose replies counted last, from the records of completed rounds."""
        for row in history.clients:
            if row["replied"]:
                self.counted[row["vehicle"]] = row["round"] - 1

    def evaluate(self, weights: Tensor) -> list[Evaluation]:
        """Error sums of the models [R, D] on every vehicle that answers; the others add nothing."""
        return [self._judged(own) for own in weights]

    def comparable(self, state: State) -> State:
        """The best model is chosen anew where a vehicle has joined that never judged it."""
        unknown = torch.full_like(state.best_validation, inf)
        return replace(state, best_validation=unknown) if self.joined else state

    def vehicle_rows(self, weights: Tensor) -> list[Row]:
        """Test errors of the model [1, D] by vehicle and stratum, of those that answer."""
        return self._stratum_rows("strata", weights, None)

    def used_rows(self, weights: Tensor) -> list[Row]:
        """The same of what vehicles would predict: by the level model where that is the rule."""
        return self._stratum_rows("strata", weights, self.level)

    def personal_rows(self, weights: Tensor) -> list[Row]:
        """The same after each vehicle has made the model [1, D] its own, on board."""
        return self._stratum_rows("personalise", weights, self.level)

    def _first_available(self) -> list[BoolArray]:
        return [self.roster.available(self.fleet) for _ in self.seeds]

    def _next_available(self, state: State) -> list[BoolArray]:
        return self._first_available()

    def _calling_seed(self, run: int) -> int:
        """The run's; for a private method a secret one, since ε counts on nobody knowing it."""
        return self.secret if self.private else super()._calling_seed(run)

    def _server_generator(self, run: int, round: int) -> np.random.Generator:
        """The run's; for a private method a fresh one, since vehicles know the run's seed."""
        if not self.private:
            return super()._server_generator(run, round)
        return np.random.default_rng(randbits(128))

    @property
    def private(self) -> bool:
        """Whether the method adds noise for privacy."""
        return getattr(self.choice.method.server, "noise_multiplier", 0.0) > 0

    def _new_memory(self, method: Method, weights: Tensor) -> dict[str, Table]:
        return {}

    def _local_work(
        self, method: Method, state: State, live: Sequence[int], watch: Stopwatch
    ) -> tuple[State, list[Call], Work]:
        """Ask the participants to train; what does not come, or cannot be used, is not counted."""
        calls = [call for run in live for call in self._calls(state, run)]
        names = {self.fleet.clients[call.vehicle].name: call for call in calls if call.steps}
        questions = {
            node: self._training_question(method, state, name)
            for node, name in self.roster.nodes(names).items()
        }
        uploads = uploads_of(method)
        asked = [*uploads, *DIAGNOSTICS] if self.terms.diagnostics else uploads
        answers = self.roster.exchange.ask(
            "train",
            questions,
            self.terms.round_seconds,
            sizes=sizes_of(self, method),
            asked=asked,
        )
        nodes = {member.node: name for name, member in self.roster.members.items()}
        found = {
            names[nodes[node]]: self._reply(method, state.round, names[nodes[node]], answer)
            for node, answer in answers.items()
        }
        return state, calls, enough(self._work(method, state, found), self.terms.minimum_replies)

    def _training_question(self, method: Method, state: State, name: str) -> Content:
        anchor = state.weights[0]
        sent = self._broadcast(method, state)
        arrays = {
            f"{BROADCAST}{key}": (v.to(anchor.dtype) if v.is_floating_point() else v)[0]
            .cpu()
            .numpy()
            for key, v in sent.items()
        }
        values: dict[str, Value] = self.common | {
            "round": state.round,
            "counted": self.counted.get(name, -1),
            "population": self.population_size,
            "population_windows": self.population_windows,
            "diagnostics": self.terms.diagnostics,
        }
        return Content(values, {"weights": anchor.cpu().numpy(), **arrays})

    def _reply(self, method: Method, round: int, call: Call, answer: Answer) -> Content | None:
        """A reply that may count; None, said aloud, for one that must not."""
        name = self.fleet.clients[call.vehicle].name
        trouble = answer.trouble or self._fault(method, round, call, answer)
        if trouble:
            log.warning("round %d: reply of %s rejected: %s", round + 1, name, trouble)
            return None
        return answer.content

    def _fault(self, method: Method, round: int, call: Call, answer: Answer) -> str:
        """What is wrong with a reply that has the declared fields; empty if nothing."""
        assert answer.content is not None
        values, arrays = answer.content.values, answer.content.arrays
        if values["round"] != round:
            return f"it answers round {values['round']!r}"
        missing = set(uploads_of(method)) - set(arrays)
        if missing:
            return f"it lacks '{min(missing)}'"
        windows, name = values["windows"], self.fleet.clients[call.vehicle].name
        assert isinstance(windows, int)
        if not self.roster.possible(windows):
            return f"it has {windows} windows"
        if windows == self.roster.members[name].windows[0]:
            return accumulation_fault(arrays, call.steps)
        self.roster.resize(name, windows)
        return f"it has {windows} windows now, and not those it enrolled with"

    def _work(self, method: Method, state: State, found: dict[Call, Content | None]) -> Work:
        """Replies as the aggregation takes them; rejected ones are rows that do not count."""
        if not found:
            return no_work(state.weights)
        calls = list(found)
        usable = np.array([found[call] is not None for call in calls])
        deltas = torch.zeros(len(calls), state.weights.shape[1], dtype=state.weights.dtype)
        names = uploads_of(method)
        uploads: dict[str, Tensor] = {}
        columns = {name: [nan] * len(calls) for name in DIAGNOSTICS}
        for row, call in enumerate(calls):
            content = found[call]
            if content is None:
                continue
            deltas[row] = torch.from_numpy(content.arrays["delta"])
            for name in names:
                value = torch.from_numpy(content.arrays[name])
                table = uploads.setdefault(name, value.new_zeros((len(calls), *value.shape)))
                table[row] = value
            for name in DIAGNOSTICS:
                told = content.values.get(name, nan)
                columns[name][row] = told if isinstance(told, float) else nan
        finite = deltas.isfinite().all(dim=-1).numpy()
        for table in uploads.values():
            flat = table.reshape(len(calls), -1)
            finite &= flat.isfinite().all(dim=-1).numpy()
        columns["drift"] = torch.where(
            torch.from_numpy(usable), deltas.double().norm(dim=-1), nan
        ).tolist()
        # The server rule reads every row's upload shape, so those that do not count stay finite.
        deltas = torch.where(torch.from_numpy(finite)[:, None], deltas, 0.0)
        for call, well in zip(calls, finite, strict=True):
            if not well:
                name = self.fleet.clients[call.vehicle].name
                log.warning("round %d: reply of %s is not finite", state.round + 1, name)
        # One vehicle's NaN must not end a run; that all of several send it may.
        diverged = len(calls) > 1 and not finite[usable].any() and usable.sum() > 1
        return Work(
            calls,
            deltas.to(self.device),
            np.full(len(calls), not diverged),
            finite & usable,
            {},
            {name: table.to(self.device) for name, table in uploads.items()},
            columns,
        )

    def _judged(self, weights: Tensor) -> Evaluation:
        """Error sums of one model [D]; vehicles that do not answer have no test errors.

        Their validation errors are their last ones, so that the best of two rounds is chosen
        between errors on the same vehicles: without them a round would look better because a
        vehicle that is hard to predict was away. See `comparable` for one that is new.
        """
        names = [self.fleet.clients[k].name for k in self.evaluated]
        sums = {name: (self.last_validation.get(name, ErrorSums()), ErrorSums()) for name in names}
        nodes = self.roster.nodes(sums)
        question = Content(dict(self.common), {"weights": weights.cpu().numpy()})
        answers = self.roster.exchange.ask(
            "evaluate",
            dict.fromkeys(nodes, question),
            self.terms.evaluation_seconds,
            sizes=sizes_of(self, self.choice.method),
        )
        for node, answer in answers.items():
            try:
                if answer.content is None:
                    raise DataError(answer.trouble)
                own = answer.content.arrays
                sums[nodes[node]] = self._sums(own["validation"]), self._sums(own["test"])
            except DataError as error:
                log.warning("evaluation of %s rejected: %s", nodes[node], error)
        known = {name: own[0] for name, own in sums.items() if own[0].windows}
        self.joined = bool(self.last_validation) and not known.keys() <= self.last_validation.keys()
        self.last_validation |= known
        judging = sum(own[1].windows > 0 for own in sums.values())
        if judging < len(names):
            log.info("the model was judged by %d of %d vehicles", judging, len(names))
        ordered = [sums[name] for name in names]
        return Evaluation([own[0] for own in ordered], [own[1] for own in ordered])

    def _stratum_rows(self, kind: str, weights: Tensor, level: NDArray[Any] | None) -> list[Row]:
        """Rows of a model; the last model is often the best one, too, and is asked about once."""
        arrays = {"weights": weights[0].cpu().numpy()}
        if level is not None:
            arrays[LEVEL] = level
        parts = (sha256(array.tobytes()).hexdigest() for array in arrays.values())
        model = " ".join((kind, *parts))
        if model not in self.rows:
            self.rows[model] = self._asked_rows(kind, arrays)
        return self.rows[model]

    def _asked_rows(self, kind: str, arrays: Mapping[str, NDArray[Any]]) -> list[Row]:
        names = {client.name: client for client in self.fleet.clients}
        nodes = self.roster.nodes(names)
        question = Content(dict(self.common), arrays)
        # Fine-tuning takes about as long as a round; looking at a model does not.
        tuning, looking = self.terms.round_seconds, self.terms.evaluation_seconds
        answers = self.roster.exchange.ask(
            kind,
            dict.fromkeys(nodes, question),
            tuning if kind == "personalise" else looking,
            sizes=sizes_of(self, self.choice.method),
        )
        by_name = {nodes[node]: answer for node, answer in answers.items()}
        rows: list[Row] = []
        for name, client in names.items():
            about = {"seed": self.seeds[0], "vehicle": name, "held_out": client.held_out}
            try:
                if name not in by_name:
                    raise DataError("it did not answer")
                errors = self._strata(by_name[name])
                rows += [{**about, "stratum": s, **error_columns(e)} for s, e in errors.items()]
            except DataError as error:
                log.warning("no errors of %s by stratum: %s", name, error)
        return rows

    def _strata(self, answer: Answer) -> dict[str, ErrorSums]:
        """Error sums by stratum; DataError if they cannot be used."""
        if answer.content is None:
            raise DataError(answer.trouble)
        strata, sums = answer.content.values["strata"], answer.content.arrays["sums"]
        assert isinstance(strata, list)
        if len(strata) != len(sums) or len(set(strata)) != len(strata):
            raise DataError(f"{len(sums)} error sums do not fit {len(set(strata))} strata")
        if not all(isinstance(stratum, str) for stratum in strata):
            raise DataError("a stratum has a name")
        return {str(s): self._sums(own) for s, own in zip(strata, sums, strict=True)}

    def _sums(self, row: NDArray[np.float64]) -> ErrorSums:
        """Error sums from a vehicle; DataError if they cannot be true."""
        if row[SUMS.index("windows")] > self.roster.windows_limit:
            raise DataError("error sums are of more windows than a vehicle can have")
        return from_array(row)


def accumulation_fault(arrays: Mapping[str, NDArray[Any]], steps: int) -> str:
    """Why FedNova's ‖a_k‖₁ of H_k = `steps` cannot be divided by; empty if it can, or is not there.

    Momentum repeats gradients most, with ρ → 1: ‖a_k‖₁ → 1 + 2 + ... + H_k.

    >>> accumulation_fault({"accumulation": np.array(48.24)}, 11)
    ''
    >>> accumulation_fault({"accumulation": np.array(0.0)}, 11)
    'its accumulation is 0, and 11 steps make 0.01 to 66'
    """
    if "accumulation" not in arrays:
        return ""
    told, most = float(arrays["accumulation"]), steps * (steps + 1) / 2
    # The closed forms are float64 and lose a few digits where ρ is nearly 1.
    if LEAST_ACCUMULATION <= told <= most * (1 + 1e-6):
        return ""
    return f"its accumulation is {told:g}, and {steps} steps make {LEAST_ACCUMULATION} to {most:g}"
