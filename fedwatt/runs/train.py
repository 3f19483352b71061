"""Train one method from its last checkpoint on, whatever its vehicles are."""

import time
from pathlib import Path
from typing import TypeVar

from fedwatt.federation import Federation, History, Loop, State
from fedwatt.observers import Observer
from fedwatt.privacy import Budget
from fedwatt.runs.checkpoint import Origin, load_checkpoint, save_checkpoint
from fedwatt.runs.config import MethodChoice

Rounds = TypeVar("Rounds", Federation, Loop)
"""What trains a method: a federation in this process, or a loop over vehicles on the road."""


def train_method(
    federation: Rounds,
    choice: MethodChoice,
    folder: Path,
    observer: Observer,
    origin: Origin,
    checkpoint_seconds: float,
    budget: Budget | None,
) -> tuple[State, History]:
    """Train all rounds of a method, after its last checkpoint in `folder` if it has one.

    A checkpoint is written at most every `checkpoint_seconds`, and whenever training stops.
    """
    seeds = len(federation.seeds)
    epsilon = None if budget is None else budget.epsilon
    checkpoint = load_checkpoint(folder, choice.label, origin)
    if checkpoint is None:
        state, record = federation.start(choice.method)
        history = History(choice.label)
        history.add(0, seeds, record.spending(epsilon))
    else:
        state, history = checkpoint
        state = state.to(federation.device)
    observer.on_start(choice.label, state.round, federation.training.rounds)
    saved = state.round if checkpoint else -1
    saved_at = time.monotonic()
    try:
        while not federation.finished(state):
            state, record = federation.advance(choice.method, state)
            record = record.spending(epsilon)
            history.add(state.round, seeds, record)
            observer.on_round(choice.label, state, record)
            if time.monotonic() - saved_at >= checkpoint_seconds:
                save_checkpoint(folder, state, history, origin)
                saved = state.round
                saved_at = time.monotonic()
    finally:
        # Reached on Ctrl-C as well: `state` and `history` hold completed rounds only.
        if saved != state.round and history.timing[-1]["round"] == state.round:
            save_checkpoint(folder, state, history, origin)
    observer.on_end(choice.label, history)
    return state, history
