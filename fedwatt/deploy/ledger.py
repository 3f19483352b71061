"""What a vehicle has answered, on its own disk: STATE/answers.json.

It outlasts restarts, or a server could have one end the vehicle's memory of its answers by a cut in
its power. It is written before an answer is sent. What it holds are digests and counts.
"""

import json
import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from copy import copy
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from fedwatt.files import write_text

log = logging.getLogger("fedwatt.deploy")

KEPT: Final = 20_000
"""Answers and models that are remembered, the latest ones."""


def today() -> str:
    """The date in UTC."""
    return datetime.now(UTC).date().isoformat()


class Ledger:
    """Counts of answers, by what they were for and by day."""

    def __init__(self, folder: Path, day: Callable[[], str] = today) -> None:
        self.path, self.day = folder / "answers.json", day
        self._waits = False
        self._table: dict[str, Any] = {"day": "", "answers": 0, "changes": 0}
        self._table |= {"given": {}, "models": {}, "sets": {}, "noted": {}}
        if not self.path.exists():
            return
        try:
            # Ledgers of earlier versions have nothing noted.
            found = {"noted": {}} | json.loads(self.path.read_text(encoding="utf-8"))
            self._table |= {name: type(value)(found[name]) for name, value in self._table.items()}
        except (OSError, ValueError, TypeError, KeyError) as error:
            # Not the vehicle's end, and no way to win a new day: what was counted is unknown.
            log.error("%s is damaged (%s); no answers before tomorrow", self.path, error)
            self._table |= {"day": day(), "answers": 2**62, "changes": 2**62}

    @contextmanager
    def together(self) -> Iterator[None]:
        """Keep all that is counted inside, by one write at the end, or nothing after an error."""
        before = {name: copy(value) for name, value in self._table.items()}
        self._waits = True
        try:
            yield
        except BaseException:
            self._table = before
            raise
        finally:
            self._waits = False
        self._save()

    def given(self, *what: object) -> int:
        """How many answers were given for a purpose."""
        return int(self._table["given"].get(_key(what), 0))

    def model(self, *where: object) -> str:
        """Digest of the model that a round was seen with; empty: none."""
        return str(self._table["models"].get(_key(where), ""))

    def answers_today(self) -> int:
        """Answers made from data since midnight UTC."""
        return int(self._table["answers"]) if self._table["day"] == self.day() else 0

    def changes_today(self) -> int:
        """How often the vehicles in sums of one group were others than before."""
        return int(self._table["changes"]) if self._table["day"] == self.day() else 0

    def noted_today(self, name: str) -> tuple[str, ...]:
        """What was noted under a name since midnight UTC, in order."""
        return tuple(self._table["noted"].get(name, ())) if self._table["day"] == self.day() else ()

    def note(self, name: str, items: Iterable[str]) -> None:
        """Note `items` under a name until midnight UTC, in place of what is there."""
        self._roll()
        self._table["noted"][name] = list(items)
        self._save()

    def is_change(self, group: str, vehicles: Iterable[str]) -> bool:
        """Whether the last sum of this group was of other vehicles."""
        return self._table["sets"].get(group, "") not in ("", _key(sorted(vehicles)))

    def announce(self, model: str, *places: tuple[object, ...]) -> None:
        """Remember the model that a round was first seen with."""
        for where in places:
            self._keep("models", _key(where), model)
        self._save()

    def give(self, *purposes: tuple[object, ...]) -> None:
        """Count an answer, for each of its purposes; on the disk when this returns."""
        for what in purposes:
            self._keep("given", _key(what), self.given(*what) + 1)
        self._save(answers=1)

    def summed(self, group: str, vehicles: Iterable[str], *, counts: bool = True) -> None:
        """Remember which vehicles a sum was of; where others were before, that `counts`."""
        own = _key(sorted(vehicles))
        before = self._table["sets"].get(group, "")
        if own != before:
            self._table["sets"][group] = own
            self._save(changes=int(counts and before != ""))

    def _keep(self, table: str, key: str, value: object) -> None:
        entries = self._table[table]
        entries.pop(key, None)  # the latest last
        entries[key] = value
        for old in list(entries)[: max(0, len(entries) - KEPT)]:
            del entries[old]

    def _roll(self) -> None:
        """Begin a day with nothing counted."""
        if self._table["day"] != self.day():
            self._table |= {"day": self.day(), "answers": 0, "changes": 0, "noted": {}}

    def _save(self, *, answers: int = 0, changes: int = 0) -> None:
        self._roll()
        self._table["answers"] += answers
        self._table["changes"] += changes
        if not self._waits:
            write_text(self.path, json.dumps(self._table) + "\n")


def _key(what: Iterable[object]) -> str:
    return sha256(json.dumps([str(part) for part in what]).encode()).hexdigest()[:32]
