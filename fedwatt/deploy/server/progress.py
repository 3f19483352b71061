"""The server's state of each vehicle between rounds, as `State.events` stores it."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

import torch

from fedwatt.deploy.server.back_off import BackOff
from fedwatt.errors import RunError
from fedwatt.methods.rule import Rows
from fedwatt.metrics import ErrorSums


@dataclass(frozen=True)
class Progress:
    """By the vehicles' names; one that is not there never did it."""

    counted: Mapping[str, int] = field(default_factory=dict)
    """The last round in which a vehicle's update counted."""
    validation: Mapping[str, ErrorSums] = field(default_factory=dict)
    """A vehicle's last validation errors."""
    evaluators: frozenset[str] = frozenset()
    """Vehicles whose errors were in a secure aggregation."""
    round: int = 0
    """Of the model that is evaluated next."""
    mean_windows: float = 0.0
    """Mean n_k of the evaluators; 0: unknown, or known of each vehicle."""
    back_offs: Mapping[str, Mapping[str, BackOff]] = field(default_factory=dict)
    """By kind of request."""

    def packed(self) -> Rows:
        """Return the state as JSON in a tensor of bytes.

        >>> Progress.unpacked(Progress({"b": 3}).packed()).counted
        {'b': 3}
        """
        table = asdict(self) | {"evaluators": sorted(self.evaluators)}
        return {"progress": torch.tensor(list(json.dumps(table).encode()), dtype=torch.uint8)}

    @classmethod
    def unpacked(cls, events: Rows) -> "Progress":
        """Return what `packed` stored."""
        if "progress" not in events:
            raise RunError(
                "The checkpoint does not tell which updates counted: it was written by another "
                "version of fedwatt. Start anew with another --out."
            )
        table = json.loads(bytes(events["progress"].tolist()))
        sums = {name: ErrorSums(**errors) for name, errors in table["validation"].items()}
        back_offs = {
            kind: {name: BackOff(**state) for name, state in states.items()}
            for kind, states in table["back_offs"].items()
        }
        evaluators = frozenset(table["evaluators"])
        return cls(**table | dict(validation=sums, back_offs=back_offs, evaluators=evaluators))
