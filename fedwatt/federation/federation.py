"""A federation on this machine: a fleet at hand and the loop over its rounds.

    federation = Federation(fleet, training=Training(rounds=30), seeds=(1, 2, 3))
    history = federation.train("fo-ri-fedavg").history

All seeds are trained side by side, in one stack.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

from torch import Tensor

from fedwatt.engine.call import Call
from fedwatt.errors import SettingError
from fedwatt.federation.backend import Backend
from fedwatt.federation.buffered import BufferedFleet
from fedwatt.federation.local_fleet import LocalFleet, Network
from fedwatt.federation.loop import Loop, Trained
from fedwatt.federation.records import RoundRecord
from fedwatt.federation.settings import Asynchronous, Availability, Training
from fedwatt.federation.simulated import SimulatedFleet
from fedwatt.federation.state import State
from fedwatt.federation.terms import Terms, checked_seeds
from fedwatt.methods import Method
from fedwatt.windows import Fleet


class Federation(LocalFleet):
    """A fleet, a model and the terms on which vehicles train it together.

    Replies make the next model in rounds, or by the buffer where `asynchronous` has one.
    """

    def __init__(
        self,
        fleet: Fleet,
        model: str | Network = "mlp",
        *,
        training: Training | None = None,
        availability: Availability | None = None,
        asynchronous: Asynchronous | None = None,
        seeds: Sequence[int] = (1,),
        device: str = "auto",
        scratch: Path | None = None,
    ) -> None:
        for name, value, kind, advice in (
            ("fleet", fleet, Fleet, "load_fleet(FOLDER) and synthetic_fleet() make one"),
            ("training", training, Training, "write Training()"),
            ("availability", availability, Availability, "write Availability(reply_loss=0.1)"),
            ("asynchronous", asynchronous, Asynchronous, "write Asynchronous(buffer=10)"),
        ):
            if value is not None and not isinstance(value, kind):
                type_name = type(value).__name__
                raise SettingError(f"{name} must be a {kind.__name__}, got {type_name}: {advice}.")
        terms = Terms(training or Training(), availability or Availability(), checked_seeds(seeds))
        super().__init__(fleet, model, terms, device=device, scratch=scratch)
        self.asynchronous = asynchronous or Asynchronous()
        self.in_rounds: Callable[[LocalFleet], Backend] = SimulatedFleet
        """Who answers for the vehicles in rounds."""
        if self.asynchronous.buffer:
            self.buffered.refuse_impossible()

    @property
    def simulated(self) -> SimulatedFleet:
        """The vehicles in rounds."""
        return SimulatedFleet(self)

    @property
    def buffered(self) -> BufferedFleet:
        """The vehicles with a buffer for their replies."""
        return BufferedFleet(self, self.asynchronous)

    @property
    def loop(self) -> Loop:
        """The loop over the rounds of these vehicles."""
        backend = self.buffered if self.asynchronous.buffer else self.in_rounds(self)
        return Loop(backend, self.terms, self.model, self.device)

    def check(self, method: Method) -> None:
        """Refuse a method that cannot work on the terms of this federation."""
        self.loop.check(method)

    def train(
        self, method: str | Method, *, on_round: Callable[[State, RoundRecord], None] | None = None
    ) -> Trained:
        """All rounds of a method; `on_round` is called after each one."""
        return self.loop.train(method, on_round=on_round)

    def start(self, method: Method) -> tuple[State, RoundRecord]:
        """Return initial models, nothing remembered, and the record of round 0."""
        return self.loop.start(method)

    def advance(self, method: Method, state: State) -> tuple[State, RoundRecord]:
        """One round of every run that is still finite."""
        return self.loop.advance(method, state)

    def own_models(self, method: Method, state: State) -> Callable[[int, Sequence[int]], Tensor]:
        """(Run, vehicles) → the model [P, D] that each would drive with after `state`."""

        def models(run: int, vehicles: Sequence[int]) -> Tensor:
            calls = [Call(run, vehicle, 0) for vehicle in vehicles]
            return self.simulated.own_models(method, state, calls)

        return models

    def finished(self, state: State) -> bool:
        """Return whether all rounds are done, or no run is left to go on with."""
        return self.loop.finished(state)
