"""What a server remembers of each vehicle of a real fleet, as `State.events` keeps it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import torch

from fedwatt.deploy.made import part_bytes, part_of
from fedwatt.deploy.rest import KINDS, Rest
from fedwatt.errors import RunError
from fedwatt.methods.rule import Rows
from fedwatt.metrics import SUMS, ErrorSums
from fedwatt.privacy.check_words import Made


@dataclass(frozen=True)
class Known:
    """By the vehicles' names; one that is not there never did it."""

    counted: Mapping[str, int] = field(default_factory=dict)
    """The last round in which a vehicle's reply counted."""
    validation: Mapping[str, ErrorSums] = field(default_factory=dict)
    """A vehicle's last validation errors."""
    judges: frozenset[str] = frozenset()
    """Vehicles whose errors were in a sum under masks."""
    round: int = 0
    """That the model which is judged next begins."""
    mean_windows: float = 0.0
    """Mean n_k of those judges; 0: not known, or known of each vehicle."""
    rests: Mapping[str, Mapping[str, Rest]] = field(default_factory=dict)
    """By kind of question, how often in a row vehicles have missed it."""
    made: Made | None = None
    """The sum that the present model was made from; None: it is the seed's, or no sum made it."""

    def packed(self) -> Rows:
        """Tensors for N vehicles: names as JSON, rounds [N], error sums [N, 6], judges [N].

        >>> Known({"b": 3}, {"a": ErrorSums(windows=9)}).packed()["counted"]
        tensor([-1,  3])
        """
        late = {name for own in self.rests.values() for name in own}
        names = sorted({*self.counted, *self.validation, *self.judges, *late})
        sums = np.zeros((len(names), len(SUMS)))
        for row, name in enumerate(names):
            if name in self.validation:
                sums[row] = self.validation[name].as_array()
        return (
            {
                "names": torch.tensor(list(json.dumps(names).encode()), dtype=torch.uint8),
                "counted": torch.tensor(
                    [self.counted.get(n, -1) for n in names], dtype=torch.int64
                ),
                "validation": torch.from_numpy(sums),
                "judges": torch.tensor([name in self.judges for name in names], dtype=torch.bool),
                "round": torch.tensor(self.round, dtype=torch.int64),
                "mean_windows": torch.tensor(self.mean_windows, dtype=torch.float64),
            }
            | (self._packed_rests(names) if late else {})
            | _packed(self.made)
        )

    def _packed_rests(self, names: list[str]) -> Rows:
        """Misses and the round of the next question, [N, kinds, 2]."""
        own = [[self.rests.get(kind, {}).get(name, Rest()) for kind in KINDS] for name in names]
        table = [[[rest.missed, rest.until] for rest in row] for row in own]
        return {"rests": torch.tensor(table, dtype=torch.int64)}

    @classmethod
    def unpacked(cls, events: Rows) -> "Known":
        """What `packed` stored."""
        if "mean_windows" not in events:
            raise RunError(
                "The checkpoint does not say which replies of vehicles counted: it was written by "
                "another version of fedwatt. Start anew with another --out."
            )
        names: list[str] = json.loads(bytes(events["names"].tolist()))
        rounds, sums = events["counted"].tolist(), events["validation"].numpy()
        told = np.flatnonzero(sums.any(axis=1)).tolist()  # rows of 0 stand for nothing said
        return cls(
            {name: round for name, round in zip(names, rounds, strict=True) if round >= 0},
            {names[row]: ErrorSums.from_array(sums[row]) for row in told},
            frozenset(n for n, own in zip(names, events["judges"].tolist(), strict=True) if own),
            int(events["round"]),
            float(events["mean_windows"]),
            _rests(events, names),
            _unpacked(events),
        )


def _rests(events: Rows, names: list[str]) -> dict[str, dict[str, Rest]]:
    table = events["rests"].tolist() if "rests" in events else []
    rows = list(zip(names, table, strict=False))
    found = {
        kind: {name: Rest(*row[place]) for name, row in rows if row[place][0]}
        for place, kind in enumerate(KINDS)
    }
    return {kind: own for kind, own in found.items() if own}


def _packed(made: Made | None) -> Rows:
    """N, d, R and the words of the sum that made a model, [3 + words], its digest and parts."""
    if made is None:
        return {}
    numbers = torch.tensor(
        [made.weight, made.divisor, made.vehicles, *made.words], dtype=torch.float64
    )
    exchange = torch.tensor(list(made.exchange), dtype=torch.uint8)
    parts = [list(part_bytes(*part)) for part in made.parts]
    more = {"parts": torch.tensor(parts, dtype=torch.uint8)} if parts else {}
    return {"made": numbers, "exchange": exchange, **more}


def _unpacked(events: Rows) -> Made | None:
    if "made" not in events:
        return None
    weight, divisor, vehicles, *words = events["made"].tolist()
    exchange = bytes(events["exchange"].tolist())
    parts = events["parts"].tolist() if "parts" in events else []
    told = tuple(part_of(bytes(part)) for part in parts)
    return Made(exchange, weight, divisor, int(vehicles), tuple(words), told)
