"""What an answer is for: the kind of question, its run, method, round and model.

A secure sum binds the text of its purpose into its keys (`Terms.purpose`). Vehicles that were asked
different questions have different keys then, and their masks do not cancel: a server cannot send
one vehicle a model of its own and have the others add what it knows beforehand.
"""

import json
from collections.abc import Iterator
from dataclasses import astuple, dataclass
from hashlib import sha256
from typing import Final

from fedwatt.deploy.configuration import settings_digest
from fedwatt.deploy.messages import SECURE, Content
from fedwatt.errors import DataError
from fedwatt.runs.level import LEVEL

OWN: Final = ("counted", "own")
"""Values of a question that differ from vehicle to vehicle: which memory it goes on from, and
whether it learns ground of its own."""


@dataclass(frozen=True)
class Purpose:
    """What an answer is for."""

    kind: str
    """Of the question, such as "secure-train"."""
    run: str
    label: str
    """Of the method; empty where it is about none."""
    round: int
    """That the model begins; -1 where there is none."""
    model: str
    """Digest of its weights; empty where there is none."""
    level: str
    """The same of the level model beside it."""
    question: str
    """Digest of all that was asked."""
    settings: str = ""
    """The same of the settings of its run."""

    @classmethod
    def of(cls, kind: str, question: Content) -> "Purpose":
        """The purpose of a question."""
        values = question.values
        round_, run, label = values.get("round"), values.get("run"), values.get("label")
        config = values.get("config")
        return cls(
            kind,
            run if isinstance(run, str) else "",
            label if isinstance(label, str) else "",
            round_ if type(round_) is int else -1,
            _weights(question, "weights"),
            _weights(question, LEVEL),
            question_digest(question),
            settings_digest(config) if isinstance(config, str) else "",
        )

    @property
    def text(self) -> str:
        """As it is bound into the keys of a sum."""
        return json.dumps(astuple(self), ensure_ascii=False)

    @classmethod
    def read(cls, text: str) -> "Purpose":
        """The purpose that a sum says it has; DataError if it says none."""
        try:
            found = cls(*json.loads(text))
            if found.text == text:
                return found
        except (ValueError, TypeError):
            pass
        raise DataError("a secure sum does not say what it is for")


def _weights(question: Content, name: str) -> str:
    """A digest of an array: the same bytes read as other numbers are another model."""
    found = question.arrays.get(name)
    if found is None:
        return ""
    return sha256(f"{found.dtype.str} {found.shape} ".encode() + found.tobytes()).hexdigest()


def question_digest(question: Content) -> str:
    """A digest of what a question says to all vehicles alike."""
    digest = sha256()
    for part in _parts(question):
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.hexdigest()


def _parts(question: Content) -> Iterator[bytes]:
    for name, value in sorted(question.values.items()):
        if name not in OWN and not name.startswith(SECURE):
            yield f"{name} {type(value).__name__}".encode()
            yield value if isinstance(value, bytes) else repr(value).encode()
    for name, array in sorted(question.arrays.items()):
        yield f"{name} {array.dtype.str} {array.shape}".encode()
        yield array.tobytes()
