"""Whether a vehicle knows how a model came about, from the seed or from a sum that it was in.

    STATE/followed/EXCHANGE-SETTINGS.safetensors   the model that one of the latest sums began with

A server that may send any model has one made whose sums are about single windows. So a vehicle
trains only models that honest rounds make: w_0 is the seed's, which it draws itself, and w_{t+1} is
w_t and the mean of a sum. Whoever was in that sum checks it (`privacy.check_words`), and the others
of a sum take the word of those who did, which they sign (`policy.followed`). A sum is known by the
settings that it was asked for with: by others the same words would pass for another model's.
"""

import logging
from hashlib import sha256
from pathlib import Path
from typing import Final

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from fedwatt.deploy.configuration import settings_digest
from fedwatt.deploy.messages import MADE, MOST_SUM
from fedwatt.deploy.questions import Task
from fedwatt.errors import DataError
from fedwatt.federation import Training
from fedwatt.files import oldest_first
from fedwatt.methods import Method
from fedwatt.privacy.check_words import CheckKey, Made, whole_sum
from fedwatt.privacy.drawing import draws_on_board
from fedwatt.privacy.secure.compose import reply_layout
from fedwatt.privacy.secure.plain import from_plain
from fedwatt.privacy.secure_settings import Terms
from fedwatt.randomness import generator
from fedwatt.runs.tensors import write_tensors

log = logging.getLogger("fedwatt.deploy")

KEPT: Final = 4
"""Sums whose first model is kept, the latest; a run and its level model have one at a time each."""


class Followed:
    """The models of a vehicle's last sums, and the key that its fleet checks sums by."""

    def __init__(self, state: Path, fleet_key: bytes | None) -> None:
        self.folder, self.fleet_key = state / "followed", fleet_key

    def check_key(self, exchange: bytes, part: bytes = b"") -> CheckKey | None:
        """The key for a sum and its part; None where this vehicle has none of its fleet."""
        return None if self.fleet_key is None else CheckKey(self.fleet_key, exchange, part)

    def remember(self, task: Task, terms: Terms) -> None:
        """Keep the model that a sum begins with, before the vehicle adds to it.

        It is to be one whose making is known: what a sum makes of any other is not known, either.
        """
        if self.fleet_key is None or not task.method.server.adds_the_mean:
            return
        room = torch.tensor(task.config.deploy.room(terms.called))
        model = {"weights": task.weights()[0], "called": room}
        write_tensors(self._file(sum_name(task, terms), task), model)
        for old in oldest_first(self.folder.glob("*.safetensors"))[:-KEPT]:
            old.unlink(missing_ok=True)

    def follows(self, task: Task) -> bool | None:
        """Whether the model of a question is the seed's, or that of a sum this vehicle was in.

        None: it cannot tell. False: it can, and the model is not what it is said to be.
        """
        try:
            made = from_plain(Made, {f"{MADE}parts": [], **task.question.values}, MADE)
        except DataError:
            # By their bytes, or -0 would be another name for the same model.
            same = task.weights().numpy().tobytes() == _initial(task).numpy().tobytes()
            return same or None
        key = self.check_key(made.exchange)
        if key is None:
            return None
        try:
            before = load_file(self._file(made.exchange, task))
        except (OSError, SafetensorError):
            return None
        method, called = task.method, int(before["called"])
        layout = reply_layout(method, task.model, task.config.secure, vehicles=called)
        after, first = task.weights()[0].numpy(), before["weights"].numpy()
        # What a private method divides by is the server's to say; more than q·R shortens the step.
        training = task.local.training
        least = method.server.divisor(made.weight, training.participation * made.weight)
        most = largest_divisor(method, training) if method.server.private else least
        same = first.shape == after.shape and least <= made.divisor <= most
        return same and key.follows(layout, first, after, made)

    def _file(self, exchange: bytes, task: Task) -> Path:
        about = f"{settings_digest(str(task.question.values['config']))} {task.choice.label}"
        settings = sha256(about.encode()).hexdigest()[:32]
        return self.folder / f"{exchange.hex()[:64]}-{settings}.safetensors"


def sum_name(task: Task, terms: Terms) -> bytes:
    """What a sum is known by: its terms, or its purpose where these are of a relay's part of it."""
    return whole_sum(terms.purpose) if task.config.deploy.relays else terms.digest


def largest_divisor(method: Method, training: Training) -> float:
    """The most that a private method divides a sum by, q·K.

    Beyond any fleet, its rounding would have room for the whole sum. Where vehicles draw for
    themselves all K are in a sum; elsewhere those q·K are that were called.
    """
    return MOST_SUM * (training.participation if draws_on_board(method, training) else 1.0)


def _initial(task: Task) -> torch.Tensor:
    """The seed's model, as a loop begins with it, [1, D]."""
    drawn = task.model.initial(generator(task.config.seeds[0], "initial model"))
    return drawn.to(task.local.dtype)[None]
