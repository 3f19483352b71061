"""The server's part of a round: the next models, from the replies that count."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch

from fedwatt.federation.backend import Present
from fedwatt.federation.state import State
from fedwatt.federation.work import Work, picked
from fedwatt.methods import Method
from fedwatt.methods.server import Replies
from fedwatt.randomness import SystemNoise


def aggregated(
    method: Method,
    state: State,
    work: Work,
    present: Present,
    *,
    participation: float,
    draws: Callable[[int, int, Work], np.random.Generator | SystemNoise],
) -> State:
    """Return the state after the server has taken in the replies that count.

    A vehicle remembers the round only if its reply counts. A run whose replies or whose next model
    are not finite keeps its last model and ends. `draws` gives the server's random numbers of a run
    and a round.
    """
    weights = state.weights.clone()
    diverged = state.diverged.clone()
    memory = {name: table.clone() for name, table in state.memory.items()}
    server = {name: table.clone() for name, table in state.server.items()}
    at_work = state.at_work
    replied = work.counted.tolist()
    heard = list[int]()
    for run in at_work:
        counted = [i for i in work.of(run) if replied[i]]
        if counted or method.server.acts_alone:
            replies = _replies(state.round, work, present, run, counted, participation, draws)
            server_state = {name: table[run] for name, table in server.items()}
            server_state, weights[run] = method.update(server_state, weights[run], replies)
            for name, value in server_state.items():
                server[name][run] = value
            heard += counted
    # All runs at once, here and below: a GPU is waited for each time that it is asked.
    runs = [work.calls[i].run for i in heard]
    vehicles = [work.calls[i].vehicle for i in heard]
    for name, values in work.memory.items():
        memory[name][runs, vehicles] = picked(values, heard)
    finite = weights.isfinite().all(dim=-1).tolist()
    for run in at_work:
        rows = work.of(run)
        if (rows and not work.finite[rows].any()) or not finite[run]:
            weights[run] = state.weights[run]
            diverged[run] = state.round + 1
    return replace(
        state,
        round=state.round + 1,
        weights=weights,
        memory=memory,
        server=server,
        diverged=diverged,
        available=present.available_next,
        events=work.events,
    )


def _replies(
    round: int,
    work: Work,
    present: Present,
    run: int,
    counted: list[int],
    participation: float,
    draws: Callable[[int, int, Work], np.random.Generator | SystemNoise],
) -> Replies:
    """Return the updates of a run that count, in the form in which server rules take them."""
    deltas, shares, uploads = work.replies(run, counted)
    return Replies(
        deltas,
        shares,
        len(present.members.population),
        present.members.population_windows,
        draws(run, round, work),
        uploads,
        participation,
        work.filled(len(counted)),
        work.noised,
        torch.tensor([work.calls[i].steps for i in counted]),
    )
