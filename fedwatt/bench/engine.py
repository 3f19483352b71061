"""How much faster the stacked engine trains than a plain loop over vehicles."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from fedwatt.bench.reference import refuse_unknown, train_plainly
from fedwatt.data import Fleet
from fedwatt.federation import Federation, Training
from fedwatt.methods import Method, get
from fedwatt.models import get_model


@dataclass(frozen=True)
class EngineResult:
    """Seconds for the same work, done both ways in one process."""

    method: str
    stacked_s: float
    plain_s: float

    @property
    def ratio(self) -> float:
        """Stacked time as a share of the plain loop's."""
        return self.stacked_s / self.plain_s


def bench_engine(
    fleet: Fleet, methods: Sequence[str], *, rounds: int, seeds: Sequence[int], repeats: int = 3
) -> list[EngineResult]:
    """Train each method `repeats` times with both engines, in turn; medians.

    Neither is evaluated after its rounds: this is about training.
    """
    model = get_model("mlp", window=fleet.window, features=len(fleet.features))
    training = Training(rounds=rounds, evaluate_every=rounds)
    federation = Federation(fleet, model, training=training, seeds=seeds, device="cpu")
    for name in methods:
        refuse_unknown(fleet, get(name), training)
    results = []
    for name in methods:
        stacked, plain = [], []
        for _ in range(repeats):
            stacked.append(_stacked_seconds(federation, get(name)))
            plain.append(_plain_seconds(federation, get(name)))
        results.append(EngineResult(name, median(stacked), median(plain)))
    return results


def _stacked_seconds(federation: Federation, method: Method) -> float:
    state, _ = federation.start(method)
    seconds = 0.0
    while not federation.finished(state):
        begin = time.perf_counter()
        state, record = federation.advance(method, state)
        # All of it, also what no section counts, as in the plain loop.
        seconds += time.perf_counter() - begin - record.seconds["evaluation"]
    return seconds


def _plain_seconds(federation: Federation, method: Method) -> float:
    begin = time.perf_counter()
    for seed in federation.seeds:
        for _ in train_plainly(
            federation.fleet, federation.model, method, federation.training, seed
        ):
            pass
    return time.perf_counter() - begin
