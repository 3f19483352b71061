"""The tables and models of a run, method after method."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from fedwatt.federation import Federation, History, Loop, State
from fedwatt.federation.final_model import GLOBAL_MODELS
from fedwatt.federation.records import Row
from fedwatt.runs.config import MethodChoice, RunConfig
from fedwatt.runs.model_file import model_prefix, write_models
from fedwatt.runs.tables import write_table


@dataclass
class RunResults:
    """Results of the methods trained so far."""

    config: RunConfig
    out: Path
    histories: list[History] = field(default_factory=list)
    vehicles: list[Row] = field(default_factory=list)
    tensors: dict[str, Tensor] = field(default_factory=dict)
    device: torch.device = field(init=False)  # on which the last method was trained

    def add(
        self,
        federation: Federation | Loop,
        choice: MethodChoice,
        state: State,
        history: History,
        evaluated: Mapping[str, Sequence[Row]],
    ) -> None:
        """Take in a method and write all tables and models into the run folder.

        `evaluated` are errors that are known already: those of "personalised" models, where
        vehicles made any, and those of the "kept" one, where vehicles do not use it for all
        windows.
        """
        self.histories.append(history)
        self.device = federation.device
        layout = federation.model.layout
        evaluated = dict(evaluated)
        for model, weights in state.models.items():
            if model not in evaluated:
                evaluated[model] = federation.vehicle_rows(weights)
            # A method's extra heads stay out.
            self.tensors |= {
                model_prefix(choice.label, model, seed) + name: part.contiguous().cpu()
                for seed, seed_weights in zip(federation.seeds, weights, strict=True)
                for name, part in layout.split(seed_weights[: layout.size]).items()
            }
        self.vehicles += [
            {"method": choice.label, "model": model} | row
            for model in ("personalised", *GLOBAL_MODELS)
            for row in evaluated.get(model, ())
        ]
        for name in ("rounds", "clients", "timing"):
            all_rows = [row for h in self.histories for row in getattr(h, name)]
            write_table(self.out, name, all_rows)
        write_table(self.out, "vehicles", self.vehicles)
        write_models(self.out, self.tensors, self.config)
