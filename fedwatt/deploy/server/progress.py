"""The server's state of each vehicle between rounds, as `State.events` stores it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import torch

from fedwatt.deploy.server.back_off import KINDS, BackOff
from fedwatt.errors import RunError
from fedwatt.methods.rule import Rows
from fedwatt.metrics import SUMS, ErrorSums


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
        """Return tensors for N vehicles: names as JSON, rounds [N], error sums [N, 6].

        >>> Progress({"b": 3}, {"a": ErrorSums(windows=9)}).packed()["counted"]
        tensor([-1,  3])
        """
        late = {name for own in self.back_offs.values() for name in own}
        names = sorted({*self.counted, *self.validation, *self.evaluators, *late})
        sums = [self.validation.get(name, ErrorSums()).as_array() for name in names]
        rows = {
            "names": torch.tensor(list(json.dumps(names).encode()), dtype=torch.uint8),
            "counted": torch.tensor([self.counted.get(n, -1) for n in names], dtype=torch.int64),
            "validation": torch.from_numpy(np.stack(sums) if sums else np.zeros((0, len(SUMS)))),
            "evaluators": torch.tensor([n in self.evaluators for n in names], dtype=torch.bool),
            "round": torch.tensor(self.round),
            "mean_windows": torch.tensor(self.mean_windows, dtype=torch.float64),
        }
        if late:
            back_offs = [
                [self.back_offs.get(k, {}).get(n, BackOff()) for k in KINDS] for n in names
            ]
            table = [[[b.misses, b.resume_round] for b in own] for own in back_offs]
            rows["back_offs"] = torch.tensor(table)
        return rows

    @classmethod
    def unpacked(cls, events: Rows) -> "Progress":
        """Return what `packed` stored."""
        if "evaluators" not in events:
            raise RunError(
                "The checkpoint does not tell which updates counted: it was written by another "
                "version of fedwatt. Start anew with another --out."
            )
        names: list[str] = json.loads(bytes(events["names"].tolist()))
        rounds = events["counted"].tolist()
        sums = events["validation"].numpy()
        present = np.flatnonzero(sums.any(axis=1)).tolist()  # rows of 0 stand for no errors
        evaluators = zip(names, events["evaluators"].tolist(), strict=True)
        back_offs: dict[str, dict[str, BackOff]] = {}
        misses = events["back_offs"].tolist() if "back_offs" in events else []
        for name, row in zip(names, misses, strict=False):
            for kind, (missed, resume) in zip(KINDS, row, strict=True):
                if missed:
                    back_offs.setdefault(kind, {})[name] = BackOff(missed, resume)
        return cls(
            {name: round for name, round in zip(names, rounds, strict=True) if round >= 0},
            {names[row]: ErrorSums.from_array(sums[row]) for row in present},
            frozenset(name for name, evaluates in evaluators if evaluates),
            int(events["round"]),
            float(events["mean_windows"]),
            back_offs,
        )
