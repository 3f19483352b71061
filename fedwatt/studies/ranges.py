"""The ranges in which each mechanism's hyperparameters are tuned.

They belong to the rules, so that a composition is tuned over the ranges of its parts. The paper's
own are those of its table `tab:training_hparams`; a baseline's are its authors'. What is not here
keeps its value: it is a safeguard, a cost, or a choice of form rather than of strength.
"""

from dataclasses import dataclass
from typing import Final

from fedwatt.methods import Method


@dataclass(frozen=True)
class Range:
    """From `low` to `high`, searched on a logarithmic scale where orders of magnitude matter."""

    low: float
    high: float
    log: bool = True

    def __str__(self) -> str:
        """As in "0.001 to 0.1, log"."""
        return f"{self.low:g} to {self.high:g}" + (", log" if self.log else "")

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high


RATE: Final = Range(1e-3, 1e-1)
"""η₀, of every method: a method that scales its steps needs another rate than one that does not."""

_ADAPTIVE: Final = {"server_rate": Range(1e-3, 1e-1), "tau": Range(1e-4, 1e-2)}

RANGES: Final[dict[str, dict[str, Range]]] = {
    "Proximal": {"mu": Range(1e-3, 1.0)},
    "RoughnessProximal": {"lam": Range(1e-4, 1.0), "tau_i": Range(0.01, 0.3)},
    "Fractional": {"alpha": Range(0.3, 1.0, log=False)},
    "Momentum": {"rho": Range(0.0, 0.95, log=False)},
    "Contrastive": {
        "contrast_weight": Range(1e-3, 10.0),
        "temperature": Range(0.1, 1.0, log=False),
    },
    "Dynamic": {"alpha_dyn": Range(1e-3, 1e-1)},
    "Elastic": {"beta": Range(0.2, 0.8, log=False)},
    "ServerSgd": {"server_momentum": Range(0.0, 0.9, log=False)},
    "Adam": _ADAPTIVE,
    "Adagrad": _ADAPTIVE,
    "Yogi": _ADAPTIVE,
}
"""Rule → hyperparameter → range."""


def ranges_of(method: Method) -> dict[str, Range]:
    """What is tuned of a method: its rate, and what its rules have in the table above.

    >>> from fedwatt.methods import get
    >>> {name: str(range) for name, range in ranges_of(get("fedprox")).items()}
    {'rate': '0.001 to 0.1, log', 'mu': '0.001 to 1, log'}
    """
    own = {
        name: r for rule in method.rules for name, r in RANGES.get(type(rule).__name__, {}).items()
    }
    return {"rate": RATE} | own
