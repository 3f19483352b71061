"""One method of a finished run folder: its tables, its state, and the way to its fleet."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fedwatt import plugins
from fedwatt.errors import DataError, RunError, SettingError, unknown
from fedwatt.federation import Federation, History, State
from fedwatt.federation.local_fleet import Network
from fedwatt.runs.checkpoint import Origin, load_checkpoint
from fedwatt.runs.config import MethodChoice, RunConfig
from fedwatt.runs.elevation import run_fleet
from fedwatt.runs.execute import federation_for
from fedwatt.runs.folder import run_hash
from fedwatt.runs.model_file import read_model_config
from fedwatt.windows import Fleet


@dataclass(frozen=True, eq=False)
class ReadBack:
    """One method of a run."""

    run: Path
    config: RunConfig
    choice: MethodChoice
    state: State
    history: History

    def federation(self, fleet: Fleet | None = None, model: Network | None = None) -> Federation:
        """Return the federation that trained it, on the run's own fleet and model unless others are
        given.

        A run with hills learns them again, from the same trips.
        """
        if fleet is None:
            if (self.run / "deployment.json").exists():
                raise DataError(
                    f"The vehicles of {self.run} are on the road, and their trips with them. Hand "
                    "over a fleet that is here: fedwatt.load(RUN, fleet=...)."
                )
            fleet = run_fleet(self.config)
        return federation_for(self.config, self.choice, fleet, model=model)


def read_back(run: Path, method: str | None, trust: Sequence[str] = ()) -> ReadBack:
    """Return the method with the label `method`, or the first one, of the run folder `run`.

    The run may name the code in `trust` (`fedwatt.plugins`).
    """
    plugins.trust(*trust)
    config = read_model_config(run)
    labels = [choice.label for choice in config.methods]
    if method is not None and method not in labels:
        raise SettingError(unknown("method of this run", method, labels))
    choice = config.methods[0 if method is None else labels.index(method)]
    origin = Origin(run_hash(config), None)
    checkpoint = load_checkpoint(run / "checkpoint" / choice.label, choice.label, origin)
    if checkpoint is None:
        raise RunError(
            f"{run} holds no checkpoint of '{choice.label}'. Copy the whole run folder, or go on "
            "with an interrupted run with --resume."
        )
    state, history = checkpoint
    if not choice.method.personalised:  # what vehicles remember is of use to the next round alone
        state = replace(state, memory={})
    return ReadBack(run, config, choice, state, history)
