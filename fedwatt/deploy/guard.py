"""The one place on board that lets a question pass: the policy and what was answered before.

Every check raises `Refusal` with the name of a rule, before anything is computed.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Final

from fedwatt.deploy.ledger import Ledger
from fedwatt.deploy.messages import Content
from fedwatt.deploy.policy import Policy, Refusal
from fedwatt.deploy.purpose import Purpose
from fedwatt.methods import Method
from fedwatt.privacy.hiding import chance_weight
from fedwatt.privacy.secure_settings import SecureSettings, Terms
from fedwatt.runs.config import RunConfig
from fedwatt.runs.hills import shares_hills

OPERATIONS_PER_SECOND: Final = 1e9
"""Of a modest processor core; by this, work is turned into seconds before it is begun."""
GROUPS: Final = {
    "secure-evaluate": "judging",
    "secure-strata": "judging",
    "secure-personalise": "judging",
    "secure-terrain": "terrain",
    "secure-routes": "terrain",
}
"""Sums of one group ask for much the same numbers, so the difference of two is about those vehicles
that are in only one of them: by group it is counted how often the vehicles change."""
PLACES: Final = ("secure-terrain", "terrain-field", "secure-routes", "driving-field")
"""Questions about where vehicles drive, whatever the configuration says that the run learns."""
ROUTES: Final = ("secure-routes", "driving-field")
"""Questions by which a fleet learns how it drives."""

MOST_RELAYED: Final = 1000
"""Vehicles that sums through relays may have room for, with words of 48 bits."""
FOLLOWED: Final = "followed"
"""The ledger's name for models whose origin a vehicle knows."""
NOISED: Final = "noised"
"""The ledger's name for models that a private round trains."""
UNFOLLOWED: Final = "unfollowed"
"""The ledger's name for models that a vehicle judged today without knowing their origin."""
CALLED: Final = "called"
"""The ledger's name for today's changes of the vehicles that were called to a sum."""
CELL: Final = "cell"
"""The ledger's name for today's grid, which places are counted on."""
ENOUGH_NOISE: Final = 1.0
"""z from which noise alone stops the attacks of docs/privacy.md for a day of questions."""


@dataclass(frozen=True)
class Guard:
    """A vehicle's policy and its ledger."""

    policy: Policy
    ledger: Ledger

    def configuration(self, config: RunConfig, kind: str = "") -> None:
        """Refuse a run on other terms than the policy's, asked about by a question of this kind."""
        policy, data, training = self.policy, config.data, config.training
        _allow("masks", config.secure.enabled or not policy.masks)
        fixed = {name: getattr(policy, name) for name in ("window", "stride", "evaluation_stride")}
        same = all(value in (0, getattr(data, name)) for name, value in fixed.items())
        same &= policy.split in ((), data.split) and policy.split_seed in (-1, data.split_seed)
        _allow("data", same and (not policy.targets or data.target in policy.targets))
        few = 0 < training.steps * training.batch < policy.fewest_trained  # 0: whole epochs
        _allow("few_trained", not few)
        if shares_hills(config) or kind in PLACES:
            enough = config.terrain.minimum_vehicles >= policy.hills_vehicles
            _allow("hills", policy.hills and enough)
            _allow("smallest_cell", config.terrain.cell_m >= policy.smallest_cell)
        usual, own = SecureSettings(), config.secure
        fine = own.bits >= usual.bits and own.delta_limit <= usual.delta_limit
        fine &= own.windows_limit <= usual.windows_limit
        fine &= own.bits > usual.bits or config.deploy.relays <= MOST_RELAYED
        # Coarser words would leave room for another model within their rounding.
        _allow("followed", not policy.masks or not policy.followed or fine)
        for choice in config.methods:
            _allow("methods", not policy.methods or choice.method.name in policy.methods)
            mechanism = choice.method.server.mechanism
            noise = 0.0 if mechanism is None else mechanism.noise_multiplier
            _allow("noise", noise >= policy.noise)
            can_be = choice.method.server.adds_the_mean or protects(choice.method)
            _allow("followed", not policy.masks or not policy.followed or can_be)
            _allow("lifetime_epsilon", noise > 0 or policy.lifetime_epsilon == inf)

    def kind(self, kind: str) -> None:
        """Refuse a kind of question that the policy does not allow."""
        _allow("routes", self.policy.routes or kind not in ROUTES)

    def size(self, content: Content) -> None:
        """Refuse a question that is too large. An answer in the clear is no larger than it."""
        texts = (v for value in content.values.values() for v in _items(value))
        size = sum(len(v) for v in texts if isinstance(v, str | bytes))
        size += sum(array.nbytes for array in content.arrays.values())
        _allow("megabytes", size <= self.policy.megabytes * 1e6)

    def clear(self) -> None:
        """Refuse an answer outside a sum."""
        _allow("masks", not self.policy.masks)

    def terms(self, terms: Terms) -> None:
        """Refuse a sum that may be of too few vehicles, or whose answers would be too large."""
        _allow("smallest_sum", terms.threshold >= self.policy.smallest_sum)
        _allow("megabytes", terms.length * terms.bits / 8 <= self.policy.megabytes * 1e6)

    def training(
        self, config: RunConfig, method: Method, steps: int, windows: int, parameters: int
    ) -> None:
        """Refuse a round of `steps` that would take too long, or whose Δ would be of few windows.

        The vehicle has `windows` to draw batches from. Without a step there is no Δ.
        """
        batch = config.training.batch
        few = 0 < min(steps * batch, windows) < self.policy.fewest_trained
        _allow("few_trained", not few)
        probes = sum(
            getattr(rule, "directions", 0) * (getattr(rule, "points", 0) + 1)
            for rule in method.local
        )
        # Forward and backward are 6 operations a weight and window, forward alone is 2.
        self._work(config, steps, (6 * steps + 2 * probes) * batch * parameters)

    def judging(self, config: RunConfig, windows: int, parameters: int) -> None:
        """Refuse to judge a model of so many weights on `windows` if that would take too long."""
        self._work(config, 0, 2 * windows * parameters)

    def spending(self, epsilon: Callable[[], float]) -> None:
        """Refuse a round after which the lifetime `epsilon` would be more than allowed.

        Where there is no bound it is not worked out.
        """
        bound = self.policy.lifetime_epsilon
        _allow("lifetime_epsilon", bound == inf or epsilon() <= bound)

    def fine_tuning(self, config: RunConfig, parameters: int) -> None:
        """Refuse fine-tuning that would take too long."""
        own = config.personal
        steps = len(own.rates) * max(own.steps)
        self._work(config, steps, 6 * steps * own.batch * parameters)

    def _work(self, config: RunConfig, steps: int, operations: int) -> None:
        # A recurrent model uses its weights once a sample, any other once a window.
        per_window = config.data.window if config.model.name in ("gru", "lstm") else 1
        seconds = operations * per_window / OPERATIONS_PER_SECOND
        _allow("work", steps <= self.policy.steps and seconds <= self.policy.seconds)

    def announced(self, purpose: Purpose) -> None:
        """Refuse a second model for a round, and at the end one that was no round's.

        The first model that is seen in a round is the round's: the sum that judges it announces
        what the round will train.
        """
        if not purpose.model or self.policy.answers > 1:
            return
        method = (purpose.run, purpose.label)
        if purpose.round < 0:
            _allow("unannounced", bool(self.ledger.model(*method, purpose.model)))
            return
        known = self.ledger.model(*method, purpose.round)
        _allow("unannounced", known in ("", purpose.model))
        if not known:
            self.ledger.announce(purpose.model, (*method, purpose.round), (*method, purpose.model))

    def follows(self, purpose: Purpose, method: Method, tell: Callable[[], bool | None]) -> bool:
        """Whether this vehicle knows how a model came about; `tell` is asked where it must be.

        Refuses to train one that it knows to be another than it is said to be (False, not None).
        Who leaves models to the server vouches for none.
        """
        if not self.policy.followed:
            return False
        if self.ledger.model(*_known(purpose)):
            return True
        if protects(method) and purpose.kind.endswith("train"):
            self.ledger.announce(purpose.model, (NOISED, purpose.question))
        told = tell()
        if told is False and purpose.kind.endswith("train"):
            self.ledger.give()  # one of the day's answers, or a server could try until one passes
            raise Refusal("followed")
        if told:
            self.ledger.announce(purpose.model, _known(purpose))
        return bool(told)

    def unfollowed(self, purpose: Purpose, *, follows: bool) -> None:
        """Count a model that this vehicle judges and does not follow, before its errors leave it.

        Later would be too late: a sum can be unmasked without this vehicle. Of a level model beside
        another one nobody knows more than its errors say. Each such model is judged once by every
        kind of question, beside or without another, whatever its method is called.
        """
        if not self.policy.followed or not purpose.model or purpose.kind.endswith("train"):
            return
        uses = [] if follows else [f"{purpose.model} {purpose.kind} {bool(purpose.level)}"]
        uses += [f"{purpose.level} {purpose.kind} beside"] if purpose.level else []
        noted = self.ledger.noted_today(UNFOLLOWED)
        _allow("answered", self.policy.answers > 1 or not set(uses) & set(noted))
        models = {use.split()[0] for use in (*noted, *uses)}
        _allow("unfollowed_a_day", not uses or len(models) <= self.policy.unfollowed_a_day)
        if uses:
            self.ledger.note(UNFOLLOWED, (*noted, *uses))

    def revealing(self, purpose: Purpose, followers: int) -> None:
        """Refuse to unmask a sum about a model of which few of its vehicles know the origin.

        Where enough of them do, this vehicle knows it from now on, too, and it does not count as
        `unfollowed`. Any other is trained only where noise `protects` it, and judged a few times a
        day: the mean of two models, or one of a private method after a round without a sum.
        """
        wanted, ledger = self.policy.followed, self.ledger
        if not wanted or not purpose.model or ledger.model(*_known(purpose)):
            return
        if followers >= wanted:
            ledger.announce(purpose.model, _known(purpose))
            noted = ledger.noted_today(UNFOLLOWED)
            ledger.note(UNFOLLOWED, (use for use in noted if use.split()[0] != purpose.model))
        elif purpose.kind.endswith("train"):
            _allow("followed", ledger.model(NOISED, purpose.question) == purpose.model)

    def unanswered(self, purpose: Purpose) -> None:
        """Refuse what was answered as often as the policy allows, and too many answers a day."""
        given = max(self.ledger.given(*what) for what in _counted(purpose))
        _allow("answered", given < self.policy.answers)
        _allow("answers_a_day", self.ledger.answers_today() < self.policy.answers_a_day)

    def answer(self, purpose: Purpose, *, masked: bool) -> None:
        """Count an answer that is about to be given.

        The same answer to the same question tells nothing new in the clear. Under masks it does:
        two sums of different vehicles differ by single ones.
        """
        self.announced(purpose)
        if masked:
            self.unanswered(purpose)
        else:
            today = self.ledger.answers_today()
            _allow("answers_a_day", today < self.policy.answers_a_day)
        self.ledger.give(*_counted(purpose))

    def adds(
        self,
        purpose: Purpose,
        called: tuple[str, ...],
        *,
        follows: bool = False,
        cell_m: float | None = None,
    ) -> None:
        """Count an answer to a sum over the vehicles `called`, as the last thing before it is made.

        It is about places on a grid of `cell_m`, or about a model. Where any of it is refused,
        nothing is used up: the same question may be asked again on another day.
        """
        with self.ledger.together():
            if cell_m is None:
                self.unfollowed(purpose, follows=follows)
            else:
                self.grid(cell_m)
            self.joins(purpose.kind, called)
            self.answer(purpose, masked=True)

    def joins(self, kind: str, called: tuple[str, ...]) -> None:
        """Refuse to add to a sum over others than before too often, before anything is added.

        Whoever is then in it can be told apart without a word more from this vehicle: the others
        can unmask it, and `agreed` is not reached by a vehicle that the server does not ask to
        agree.
        """
        group = GROUPS.get(kind)
        if group is None:
            return
        sets, changes = f"{CALLED} {group}", self.ledger.noted_today(CALLED)
        if self.ledger.is_change(sets, called):
            _allow("set_changes_a_day", len(changes) < self.policy.set_changes_a_day)
            self.ledger.note(CALLED, (*changes, group))
        self.ledger.summed(sets, called, counts=False)

    def grid(self, cell_m: float) -> None:
        """Refuse a second grid on one day: the cells of several together are smaller than each."""
        cell, today = repr(cell_m), self.ledger.noted_today(CELL)
        _allow("smallest_cell", not self.policy.smallest_cell or set(today) <= {cell})
        self.ledger.note(CELL, [cell])

    def agreed(self, terms: Terms, survivors: tuple[str, ...]) -> None:
        """Refuse to unmask a sum of too few vehicles, or of others than before too often.

        Vehicles of rounds change from round to round as they are drawn, so these are not counted.
        """
        _allow("smallest_sum", len(survivors) >= self.policy.smallest_sum)
        group = GROUPS.get(Purpose.read(terms.purpose).kind)
        if group is None:
            return
        if self.ledger.is_change(group, survivors):
            _allow("set_changes_a_day", self.ledger.changes_today() < self.policy.set_changes_a_day)
        self.ledger.summed(group, survivors)

    def hiding(self, method: Method) -> float:
        """ν of the noise on a reply; 0 where a private method has noise enough of its own."""
        return 0.0 if protects(method) else self.policy.hiding

    def weight(self, windows: int, *, hidden: bool) -> int:
        """What the vehicle weighs in a mean; where it is `hidden`, by chance more or less."""
        heaviest = min(windows, self.policy.most_windows)
        return min(chance_weight(heaviest), self.policy.most_windows) if hidden else heaviest

    def enough(self, counts: list[int]) -> bool:
        """Whether there are windows enough to take part."""
        return min(counts) >= self.policy.fewest_windows


def _counted(purpose: Purpose) -> list[tuple[object, ...]]:
    """The purposes that an answer uses up: its round in its run, and its question in any run.

    A method's label is part of both, or the second method of a run would get no answers about the
    seed's model, which all methods begin with. Run and label are the server's to choose, so this
    stops a repetition and not a lie. Two sums about a model that rounds made, asked for under two
    names, differ by what `hiding` leaves (docs/privacy.md); any other is not judged under a second
    name (`unfollowed`).
    """
    kind, label = purpose.kind, purpose.label
    if purpose.kind.endswith("train"):
        return [
            (kind, purpose.run, label, purpose.round),
            (kind, label, purpose.round, purpose.model),
        ]
    if purpose.model:
        return [(kind, label, purpose.model, purpose.level)]
    return [(kind, purpose.question)]


def _known(purpose: Purpose) -> tuple[str, ...]:
    """Where the ledger has a model whose origin is known; by other settings it is another one."""
    return FOLLOWED, purpose.settings, purpose.label, purpose.model


def protects(method: Method) -> bool:
    """Whether a method's noise hides a vehicle in a sum, whatever model is trained."""
    mechanism = method.server.mechanism
    return mechanism is not None and mechanism.noise_multiplier >= ENOUGH_NOISE


def _items(value: object) -> list[object]:
    return value if isinstance(value, list) else [value]


def _allow(rule: str, holds: bool) -> None:
    if not holds:
        raise Refusal(rule)
