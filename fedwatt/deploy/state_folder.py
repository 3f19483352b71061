"""A vehicle's state folder: the files of one run on a real fleet that its model file needs."""

from dataclasses import dataclass
from pathlib import Path

from fedwatt.deploy.hills_on_board import hills_files
from fedwatt.deploy.memory import memory_folder, personal_file, run_folder
from fedwatt.deploy.state import RunState
from fedwatt.errors import RunError


@dataclass(frozen=True)
class StateFolder:
    """The state folder of a vehicle, as far as it belongs to one run."""

    state: Path
    run: Path  # the run folder
    number: str  # the name under which vehicles file their memory of the run

    @classmethod
    def of(cls, state: Path, run: Path) -> "StateFolder":
        """The part of the folder `state` that belongs to `run`, which must be of a real fleet."""
        numbers = run / "deployment.json"
        if not numbers.exists():
            raise RunError(
                f"{run} has no deployment.json, so it is no run of a real fleet, and no vehicle's "
                "state folder belongs to it. Leave --state out."
            )
        return cls(state, run, RunState.read(numbers).run)

    def personal(self, label: str) -> Path:
        """The model that the vehicle made its own from that of the method `label`."""
        file = personal_file(memory_folder(self.state, self.number, label))
        if not file.is_file():
            raise self._missing(f"personal model for {label}", "a run with --personalise")
        return file

    def hills(self) -> Path:
        """The vehicle's own hills."""
        files = hills_files(run_folder(self.state, self.number))
        if not files:
            raise self._missing("hills", "a run that learns them")
        return files[0]

    def _missing(self, what: str, made: str) -> RunError:
        return RunError(
            f"{self.state} has no {what} of the run {self.run}. A vehicle makes its own in {made} "
            "and keeps those of its last three runs."
        )
