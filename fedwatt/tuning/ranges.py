"""Tuned quantities of a method: the learning rate, and what its rules declare."""

from dataclasses import fields
from typing import Final

from fedwatt.errors import SettingError
from fedwatt.methods import Method
from fedwatt.settings import Range

RATE: Final = Range(1e-3, 1e-1)
"""η₀, of every method: a method that scales its steps needs another rate than one that does not."""


def ranges_of(method: Method) -> dict[str, Range]:
    """Return the ranges of a method's rate and of its rules' hyperparameters.

    >>> from fedwatt.methods import get
    >>> {name: str(range) for name, range in ranges_of(get("fedprox")).items()}
    {'learning_rate': '0.001 to 0.1, log', 'mu': '0.001 to 1, log'}
    """
    ranges = {"learning_rate": RATE}
    for rule in method.rules:
        for field in fields(rule):
            if field.type in (float, "float") and field.name not in {*rule.ranges, *rule.fixed}:
                raise SettingError(
                    f"{type(rule).__name__} does not tell how to tune {field.name}. Declare it by "
                    "number(), with its range as `tuned` or the reason to leave it as `fixed`."
                )
        ranges |= rule.ranges
    return ranges
