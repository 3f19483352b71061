"""How vehicles behave in a run: what they refuse by their policies, and replies beyond limits.

A refusal is a vehicle's right: it is shown to the operator and nothing follows. A reply beyond the
limits is a fault. It does not count, and after three of them the vehicle is set aside: it is called
no more in this run. Both are in RUN/conduct.json, and `fedwatt deploy status --out RUN` shows them.
"""

import json
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from fedwatt.deploy.policy import RULES
from fedwatt.errors import RunError, counted
from fedwatt.files import write_text

log = logging.getLogger("fedwatt.deploy")

MOST_FAULTS: Final = 3
"""After which a vehicle is set aside."""


@dataclass
class Conduct:
    """Faults and refusals by vehicle."""

    path: Path
    faults: dict[str, list[str]] = field(default_factory=dict)
    """What was wrong, in the order in which it happened."""
    refusals: dict[str, dict[str, int]] = field(default_factory=dict)
    """How often a vehicle named each rule of its policy."""
    on_fault: Callable[[str, str], None] = lambda name, what: None
    """Told of every fault, the one that sets a vehicle aside included."""

    @classmethod
    def read(cls, path: Path) -> "Conduct":
        """As it was last written; nothing is known where there is no file."""
        if not path.exists():
            return cls(path)
        try:
            table: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            faults = {str(name): [str(one) for one in own] for name, own in table["faults"].items()}
            refusals = {str(n): {str(r): int(c) for r, c in own.items()}
                        for n, own in table["refusals"].items()}  # fmt: skip
            return cls(path, faults, refusals)
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise RunError(f"{path} is damaged: {error}. Delete it.") from error

    def set_aside(self, name: str) -> bool:
        """Whether a vehicle is called no more."""
        return len(self.faults.get(name, ())) >= MOST_FAULTS

    def fault(self, name: str, what: str) -> None:
        """Count a reply beyond the limits."""
        if self.set_aside(name):
            return
        own = self.faults.setdefault(name, [])
        own.append(what[:200])
        self.on_fault(name, what)
        left = MOST_FAULTS - len(own)
        then = f"{left} more and it is set aside" if left else "it is set aside for this run"
        log.warning("fault %d of %s: %s; %s", len(own), name, what, then)
        self._save()

    def refused(self, name: str, rule: str) -> None:
        """Count a refusal; said in the log when it is the first by this rule."""
        own = self.refusals.setdefault(name, {})
        if rule not in own:
            log.warning("%s refuses: %s", name, RULES[rule])
        own[rule] = own.get(rule, 0) + 1
        self._save()

    def lines(self) -> Iterator[str]:
        """What `fedwatt deploy status` shows."""
        for name, rules in sorted(self.refusals.items()):
            for rule, times in rules.items():
                yield f"{name} refused {counted(times, 'question')}: {RULES[rule]}"
        for name, faults in sorted(self.faults.items()):
            state = ", set aside" if self.set_aside(name) else ""
            yield f"{name}: {counted(len(faults), 'fault')}{state}; the last: {faults[-1]}"

    def _save(self) -> None:
        table = {"faults": self.faults, "refusals": self.refusals}
        write_text(self.path, json.dumps(table, indent=2, ensure_ascii=False) + "\n")
