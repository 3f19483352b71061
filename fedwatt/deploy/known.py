"""What a server remembers of each vehicle of a real fleet, as `State.events` keeps it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import torch

from fedwatt.deploy.messages import MADE, Value
from fedwatt.deploy.rest import Rest
from fedwatt.errors import RunError
from fedwatt.methods.rule import Rows
from fedwatt.metrics import ErrorSums
from fedwatt.privacy.check_words import Made
from fedwatt.privacy.secure.plain import to_plain

KNOWN: Final = "known"


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
        return {} if self.made is None else to_plain(self.made, MADE)

    def packed(self) -> Rows:
        """All of it as JSON, in the bytes [length] of one tensor.

        >>> Known.unpacked(Known({"b": 3}, {"a": ErrorSums(windows=9)}).packed()).counted
        {'b': 3}
        """
        text = json.dumps(vars(self), sort_keys=True, default=_plain)
        return {KNOWN: torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8)}

    @classmethod
    def unpacked(cls, events: Rows) -> "Known":
        """What `packed` stored."""
        if KNOWN not in events:
            raise RunError(
                "The checkpoint does not say which replies of vehicles counted: it was written by "
                "another version of fedwatt. Finish the run with that version, or start anew with "
                "another --out."
            )
        table: dict[str, Any] = json.loads(events[KNOWN].numpy().tobytes())
        rests = {
            kind: {name: Rest(**rest) for name, rest in own.items()}
            for kind, own in table["rests"].items()
        }
        own = {
            "validation": {name: ErrorSums(**sums) for name, sums in table["validation"].items()},
            "judges": frozenset(table["judges"]),
            "rests": rests,
            "made": None if table["made"] is None else _made(table["made"]),
        }
        return cls(**table | own)


def _plain(value: Any) -> Any:
    """What JSON has no word for, in its words."""
    if isinstance(value, frozenset):
        return sorted(value)
    return value.hex() if isinstance(value, bytes) else vars(value)


def _made(table: dict[str, Any]) -> Made:
    """What a model was made from, of its JSON."""
    exchange, parts = bytes.fromhex(table["exchange"]), tuple(map(bytes.fromhex, table["parts"]))
    return Made(**table | {"exchange": exchange, "words": tuple(table["words"]), "parts": parts})
