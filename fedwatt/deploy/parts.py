"""A part of a sum: what the vehicles of one server or relay add up, and how it travels."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from fedwatt.deploy.messages import (
    LONGEST,
    Content,
    ReplyField,
    ReplyForm,
    Sizes,
    Value,
    ValueField,
)
from fedwatt.deploy.purpose import OWN
from fedwatt.errors import DataError, RunError
from fedwatt.privacy.check_words import part_of
from fedwatt.privacy.fixed_point import Layout, Words, packed, reduced, unpacked, word_type
from fedwatt.privacy.secure.messages import bits_of, names_of

RELAY: Final = "relay."
"""Prefix of what a question to a relay says beyond the one that its vehicles are asked."""


class NoSum(RunError):
    """A sum that too few saw through.

    `lost` are those that did not answer its last step in order, `rejected` those whose messages
    could not be used, then or before. `sent` says whether masked vectors were asked for by then.
    """

    def __init__(
        self,
        reason: str,
        lost: frozenset[str],
        rejected: frozenset[str] = frozenset(),
        *,
        sent: bool = False,
    ) -> None:
        super().__init__(reason)
        self.lost = lost
        self.rejected = rejected
        self.sent = sent


@dataclass(frozen=True, kw_only=True)
class SumQuestion:
    """What vehicles are asked to add up."""

    what: str  # for the log
    kind: str
    """Of the question under masks, such as "secure-train"."""
    layout: Layout
    question: Callable[[str], Content]
    """What each vehicle is asked; alike for all but for `purpose.OWN`."""
    seconds: float
    """How long a vehicle may take for its answer."""
    heaviest: tuple[float, ...] = ()
    """Most training, validation and test windows that a vehicle counts for; none: any number."""

    def content(self, names: Sequence[str]) -> Content:
        """The same as a question to a relay, about its vehicles `names`."""
        first, questions = self.question(names[0]), {name: self.question(name) for name in names}
        about = {
            "own": {name: _own(question) for name, question in questions.items()},
            "kind": self.kind,
            "layout": vars(self.layout),
            "seconds": self.seconds,
            "heaviest": self.heaviest,
        }
        common = {name: value for name, value in first.values.items() if name not in OWN}
        return Content({**common, RELAY + "sum": json.dumps(about)}, first.arrays)

    @classmethod
    def read(cls, content: Content) -> tuple["SumQuestion", list[str]]:
        """What a relay is asked, and about whom; DataError if it cannot be read."""
        try:
            about = json.loads(str(content.values[RELAY + "sum"]))
            kind, seconds, layout = str(about["kind"]), float(about["seconds"]), about["layout"]
            sizes = {n: (int(size), float(limit)) for n, (size, limit) in layout["fields"].items()}
            layout = Layout(sizes, vehicles=int(layout["vehicles"]), bits=int(layout["bits"]))
            own = {name: dict(told) for name, told in about["own"].items()}
            heaviest = tuple(float(most) for most in about["heaviest"])
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise DataError(f"a question to this relay cannot be read: {error!r}") from error
        values = content.values.items()
        common = {name: value for name, value in values if not name.startswith(RELAY)}

        def question(name: str) -> Content:
            return Content({**common, **own[name]}, content.arrays)

        asked = cls(what=f"{kind} for the centre", kind=kind, layout=layout, question=question,
                    seconds=seconds, heaviest=heaviest)  # fmt: skip
        return asked, sorted(own)


def _own(question: Content) -> dict[str, Value]:
    """What a question says to one vehicle alone."""
    return {name: question.values[name] for name in OWN if name in question.values}


@dataclass(frozen=True, kw_only=True)
class Part:
    """Words [length] that some vehicles add up to, and what is known of these."""

    words: Words = field(repr=False)
    counted: tuple[str, ...]
    """Whose words they are, ascending."""
    exchanges: tuple[bytes, ...] = ()
    """Of each exchange under masks `check_words.part_bytes`."""
    rejected: Mapping[str, str] = field(default_factory=dict)
    """Why other vehicles' messages could not be used."""
    rows: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """What is recorded of each vehicle where replies are seen."""

    def reply(self, names: Sequence[str], bits: int) -> Content:
        """As a relay sends it that was asked about `names`."""
        rejected = {n: why for n, why in self.rejected.items() if n in names}
        return Content({
            "words": packed(self.words, bits),
            "counted": bits_of(tuple(names), frozenset(self.counted)),
            "trouble": "",
            "sent": True,
            "exchanges": list(self.exchanges),
            "rows": [number for name in self.counted for number in self.rows.get(name, ())],
            "rejected": list(rejected),
            "reasons": [why[:LONGEST] for why in rejected.values()],
        })  # fmt: skip

    @classmethod
    def read(cls, content: Content, names: Sequence[str], layout: Layout) -> "Part":
        """A relay's part about `names`; NoSum if it has none, DataError if it cannot be right."""
        values: Mapping[str, Any] = content.values
        if values["trouble"]:
            raise NoSum(values["trouble"], frozenset(names), sent=values["sent"])
        counted, words = names_of(tuple(names), values["counted"]), values["words"]
        if not counted or len(words) * 8 != layout.length * layout.bits:
            raise DataError("it sent a sum of nobody, or of other words than it was asked for")
        exchanges, rows = tuple(values.get("exchanges", ())), values.get("rows", [])
        typed = all(type(one) is bytes for one in exchanges) and all(type(n) is float for n in rows)
        if not typed or len({len(one) for one in exchanges}) > 1:
            raise DataError("its exchanges, or its vehicles' rows, cannot be read")
        if exchanges and sum(part_of(one)[1] for one in exchanges) != len(counted):
            raise DataError("its exchanges are not of the vehicles that it counts")
        columns = len(rows) // len(counted)
        told = {n: tuple(rows[k * columns : (k + 1) * columns]) for k, n in enumerate(counted)}
        reasons = zip(values.get("rejected", ()), values.get("reasons", ()), strict=False)
        rejected = {name: why for name, why in reasons if name in names}
        return cls(words=unpacked(words, layout.bits), counted=counted, exchanges=exchanges,
                   rejected=rejected, rows=told if columns else {})  # fmt: skip


def no_part(error: NoSum) -> Content:
    """What a relay sends in the place of a part."""
    none: dict[str, Value] = {"words": b"", "counted": b"", "sent": error.sent}
    return Content({**none, "trouble": str(error)[:LONGEST] or "there is no sum"})


MOST_COLUMNS: Final = 64
"""Numbers that are recorded of a vehicle in a round."""


def part_form(layout: Layout, vehicles: int) -> ReplyForm:
    """What a relay's part says that so many vehicles may be in."""
    more: dict[str, ReplyField] = {
        "exchanges": ValueField(list, "the exchanges under masks that it is of", most=vehicles),
        "rows": ValueField(list, "what is recorded of its vehicles, in the clear",
                           most=vehicles * MOST_COLUMNS, longest=8),
        "rejected": ValueField(list, "vehicles whose replies were not used", most=vehicles),
        "reasons": ValueField(list, "and why", most=vehicles),
    }  # fmt: skip
    return ReplyForm("relay-sum", layout_sizes(layout), more)


def layout_sizes(layout: Layout) -> Sizes:
    """Of messages that hold a vector of words."""
    return Sizes(words=layout.length * layout.bits // 8)


def added(parts: Sequence[Part], bits: int) -> Part:
    """Several parts as one; no vehicle is in two of them.

    >>> one = Part(words=np.array([2**48 - 1], dtype="<u8"), counted=("b",))
    >>> other = Part(words=np.array([3], dtype="<u8"), counted=("a",))
    >>> both = added([one, other], 48)
    >>> both.words.tolist(), both.counted
    ([2], ('a', 'b'))
    """
    total = np.zeros(len(parts[0].words), dtype=word_type(bits))
    for part in parts:
        total = total + part.words
    return Part(
        words=reduced(total, bits),
        counted=tuple(sorted(name for part in parts for name in part.counted)),
        exchanges=tuple(one for part in parts for one in part.exchanges),
        rejected={name: why for part in parts for name, why in part.rejected.items()},
        rows={name: row for part in parts for name, row in part.rows.items()},
    )
