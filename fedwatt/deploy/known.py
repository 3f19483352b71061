"""What a server remembers of each vehicle of a real fleet, as `State.events` keeps it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import torch

from fedwatt.deploy.messages import MADE, Value
from fedwatt.deploy.rest import KINDS, Rest
from fedwatt.errors import RunError
from fedwatt.methods.rule import Rows
from fedwatt.metrics import SUMS, ErrorSums
from fedwatt.privacy.check_words import Made
from fedwatt.privacy.secure.plain import to_plain


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

    @property
    def made_values(self) -> Mapping[str, Value]:
        """Values of a question about the model; none where it is the seed's, or no sum made it."""
        values = {} if self.made is None else to_plain(self.made, MADE)
        # Without relays there are no parts, and vehicles of earlier versions know none.
        return {name: value for name, value in values.items() if value != []}

    def packed(self) -> Rows:
        """Tensors for N vehicles: names as JSON, rounds [N], error sums [N, 6], judges [N].

        Misses and the round of the next question are [N, kinds, 2]; of the sum that made the model
        there are N, d, R and its words [3 + words], its digest and its parts.

        >>> Known({"b": 3}, {"a": ErrorSums(windows=9)}).packed()["counted"]
        tensor([-1,  3])
        """
        late = {name for own in self.rests.values() for name in own}
        names = sorted({*self.counted, *self.validation, *self.judges, *late})
        sums = [self.validation.get(name, ErrorSums()).as_array() for name in names]
        rows = {
            "names": _bytes(json.dumps(names).encode()),
            "counted": torch.tensor([self.counted.get(n, -1) for n in names], dtype=torch.int64),
            "validation": torch.from_numpy(np.array(sums).reshape(-1, len(SUMS))),
            "judges": torch.tensor([name in self.judges for name in names], dtype=torch.bool),
            "round": torch.tensor(self.round),
            "mean_windows": torch.tensor(self.mean_windows, dtype=torch.float64),
        }
        if late:
            rests = [[self.rests.get(k, {}).get(n, Rest()) for k in KINDS] for n in names]
            rows["rests"] = torch.tensor([[[r.missed, r.until] for r in own] for own in rests])
        if (made := self.made) is not None:
            numbers = [made.weight, made.divisor, made.vehicles, *made.words]
            rows["made"] = torch.tensor(numbers, dtype=torch.float64)
            rows["exchange"] = _bytes(made.exchange)
            if made.parts:
                rows["parts"] = torch.stack([_bytes(part) for part in made.parts])
        return rows

    @classmethod
    def unpacked(cls, events: Rows) -> "Known":
        """What `packed` stored."""
        if "mean_windows" not in events:
            raise RunError(
                "The checkpoint does not say which replies of vehicles counted: it was written by "
                "another version of fedwatt. Finish the run with that version, or start anew with "
                "another --out."
            )
        names: list[str] = json.loads(bytes(events["names"].tolist()))
        rounds, sums = events["counted"].tolist(), events["validation"].numpy()
        told = np.flatnonzero(sums.any(axis=1)).tolist()  # rows of 0 stand for nothing said
        rests: dict[str, dict[str, Rest]] = {}
        misses = events["rests"].tolist() if "rests" in events else []
        for name, row in zip(names, misses, strict=False):
            for kind, (missed, until) in zip(KINDS, row, strict=True):
                if missed:
                    rests.setdefault(kind, {})[name] = Rest(missed, until)
        return cls(
            {name: round for name, round in zip(names, rounds, strict=True) if round >= 0},
            {names[row]: ErrorSums.from_array(sums[row]) for row in told},
            frozenset(n for n, own in zip(names, events["judges"].tolist(), strict=True) if own),
            int(events["round"]),
            float(events["mean_windows"]),
            rests,
            _made(events) if "made" in events else None,
        )


def _made(events: Rows) -> Made:
    """The sum that made a model, of its tensors."""
    weight, divisor, vehicles, *words = events["made"].tolist()
    parts = events["parts"].tolist() if "parts" in events else []
    exchange = bytes(events["exchange"].tolist())
    return Made(exchange, weight, divisor, int(vehicles), tuple(words), tuple(map(bytes, parts)))


def _bytes(content: bytes) -> torch.Tensor:
    return torch.tensor(list(content), dtype=torch.uint8)
