"""The report card: every attack at every level, beside a guess without any messages."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from fedwatt.audit.crafted import crafted_evaluation
from fedwatt.audit.displacements import differencing, inversion, inversion_of_one, membership
from fedwatt.audit.home import home_position
from fedwatt.audit.imprint import extreme_window
from fedwatt.audit.levels import CURIOUS, GUESS, LEVELS, MASKS, PLAIN
from fedwatt.audit.poisoning import poisoning
from fedwatt.audit.victims import Victims
from fedwatt.errors import SettingError
from fedwatt.telemetry import Vehicle
from fedwatt.windows import Fleet

MEASURES: Final = {
    "crafted evaluation": "share of a test window recovered; 1 is all of it",
    "inversion of one window's Δ": "share of a training window recovered",
    "inversion of a usual Δ": "share of the best-matching training window recovered",
    "extreme window by a crafted model": "share of the fleet's fastest training window recovered, "
    "of the victim's where it is plain; 'no messages' is the mean of other vehicles' fastest",
    "membership": "area under the curve; 0.5 is a guess",
    "differencing": "relative error of the victim's Δ; 'masks, curious' is the fleet's mean, and "
    "anything below that is a leak; 'masks + policy' is after a day of nothing but that",
    "home position": "median distance of the guess from home, km",
}
"""What the figures of each attack mean; those of poisoning are test RMSE in Wh."""
SET: Final = {
    "crafted evaluation": (CURIOUS, GUESS),
    "extreme window by a crafted model": (CURIOUS,),
    "membership": (GUESS,),
    "differencing": (GUESS,),
}
"""Figures that follow from what a level is, and are not measured."""


@dataclass(frozen=True)
class Card:
    """Figures by attack and level."""

    vehicles: int
    victims: int
    """Vehicles, the first ones, over which figures of attacks on one are means."""
    attacks: Mapping[str, Mapping[str, float]]
    poisoning: Mapping[str, Mapping[str, float]]

    def table(self) -> dict[str, Any]:
        """For a JSON file; what is not finite is a text there."""
        return {
            "vehicles": self.vehicles,
            "victims": self.victims,
            "measures": MEASURES,
            "attacks": _plain(self.attacks),
            "poisoning": _plain(self.poisoning),
        }


def attack_fleet(
    fleet: Fleet,
    vehicles: Sequence[Vehicle] = (),
    *,
    inputs: int = 0,
    windows: int = 100,
    rounds: int = 5,
    victims: int = 3,
    say: Callable[[str], None] = lambda attack: None,
) -> Card:
    """Attack a fleet; `vehicles` are its telemetry, for positions. `inputs` 0: all of a window.

    Figures of the attacks on one vehicle are means over the first `victims` of the fleet.
    """
    if len(fleet.clients) < 3:
        raise SettingError(f"An audit needs 3 vehicles or more, got {len(fleet.clients)}.")
    inputs = inputs or fleet.window * len(fleet.features)
    victims = min(victims, len(fleet.clients))
    of_one: dict[str, Callable[[Victims], dict[str, float]]] = {
        "crafted evaluation": lambda own: crafted_evaluation(own, inputs),
        "inversion of one window's Δ": inversion_of_one,
        "inversion of a usual Δ": lambda own: inversion(own, LEVELS, batch=64, steps=30),
        "extreme window by a crafted model": extreme_window,
        "membership": lambda own: membership(own, LEVELS, windows=windows),
        "differencing": lambda own: differencing(own, steps=30),  # those of a usual Δ
    }
    found: dict[str, dict[str, float]] = {}
    for name, attack in of_one.items():
        say(name)
        each = [attack(Victims(fleet, k)) for k in range(victims)]
        found[name] = {level: sum(one[level] for one in each) / len(each) for level in each[0]}
    if vehicles:
        say("home position")
        if home := home_position(vehicles):
            found["home position"] = home
    say("poisoning")
    level = replace(fleet, mapped=None)
    lies = poisoning(level, rounds, (PLAIN, MASKS))
    return Card(len(fleet.clients), victims, found, lies)


def _plain(table: Mapping[str, Mapping[str, float]]) -> dict[str, dict[str, float | str]]:
    return {
        name: {level: _number(value) for level, value in own.items()} for name, own in table.items()
    }


def _number(value: float) -> float | str:
    return round(value, 4) if abs(value) < float("inf") else "diverged"
