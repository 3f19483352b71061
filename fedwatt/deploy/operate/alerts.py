"""Tell an operator when something goes beyond its limit, once, and once when it is back.

What fires is in RUN/alerts.jsonl, a line a change, so a page that is started again, or a command
that cron starts, knows what was told before:

    {"at": …, "alert": "disk", "subject": "", "change": "fires", "about": "1.2 GB are free …"}
    {"at": …, "alert": "disk", "subject": "", "change": "recovered", "about": …}
"""

import json
import logging
import shlex
import subprocess
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from urllib.error import URLError
from urllib.request import Request, urlopen

from fedwatt.deploy.operate.alert_rules import NAMES, AlertSettings, beyond_limits
from fedwatt.deploy.operate.fleet_view import FleetView
from fedwatt.files import append_rows, exclusively, read_rows

log = logging.getLogger("fedwatt.alerts")

FILE: Final = "alerts.jsonl"
FIRES: Final = "fires"
RECOVERED: Final = "recovered"
SECONDS: Final = 30.0
"""To wait for a webhook or a mail command."""
MOST_PENDING: Final = 1000
"""Changes that are kept for a webhook or a mail command that does not work."""


@dataclass(frozen=True)
class Change:
    """An alert that fires from now on, or no longer does."""

    at: str
    alert: str
    subject: str
    change: str
    about: str

    @property
    def text(self) -> str:
        """A line for people."""
        return f"{self.alert}: {'recovered: ' if self.change == RECOVERED else ''}{self.about}"


@dataclass
class Watchman:
    """Looks at a fleet by the rules of a file, and tells of changes."""

    view: FleetView
    settings: AlertSettings
    pending: dict[str, list[Change]] = field(default_factory=lambda: {"webhook": [], "mail": []})
    """What each channel has not been told yet."""

    def look(self) -> list[Change]:
        """Compare the fleet with the rules, and tell of what has changed since the last time."""
        found = {alert.key: alert for alert in beyond_limits(self.view, self.settings.rules)}
        at = datetime.fromtimestamp(self.view.clock(), UTC).isoformat(timespec="seconds")
        folder = self.view.run.folder
        if not folder.exists():
            return []
        with exclusively(folder):
            before = firing(folder)
            changes = [
                Change(at, *key, FIRES, alert.about)
                for key, alert in found.items()
                if key not in before
            ]
            changes += [
                Change(at, *key, RECOVERED, own.about)
                for key, own in before.items()
                if key not in found
            ]
            if changes:
                append_rows(folder / FILE, map(vars, changes))
        for change in changes:
            level = logging.WARNING if change.change == FIRES else logging.INFO
            log.log(level, "%s", change.text)
        self._tell(changes)
        return changes

    def _tell(self, changes: list[Change]) -> None:
        """Send changes on; what a channel does not take is offered again at the next look."""
        for channel, send in (("webhook", post), ("mail", mail)):
            target = getattr(self.settings.send, channel)
            if not target:
                continue
            waiting = self.pending[channel] = [*self.pending[channel], *changes][-MOST_PENDING:]
            if not waiting:
                continue
            try:
                send(target, self.view.run.folder.name, waiting)
                self.pending[channel] = []
            except (OSError, ValueError, subprocess.SubprocessError, URLError) as error:
                log.error("alerts did not reach the %s: %s; tried again later", channel, error)

    def counts(self) -> dict[str, int]:
        """Return the number of firing alerts of each rule."""
        found = Counter(alert for alert, _ in firing(self.view.run.folder))
        return {name: found[name] for name in NAMES}


def firing(folder: Path) -> dict[tuple[str, str], Change]:
    """Return the firing alerts of a run, by rule and subject, from its file."""
    found: dict[tuple[str, str], Change] = {}
    for change in history(folder):
        key = change.alert, change.subject
        if change.change == FIRES:
            found[key] = change
        else:
            found.pop(key, None)
    return found


def history(folder: Path) -> Iterable[Change]:
    """All changes of a run, the first one first."""
    return (Change(**row) for row in read_rows(folder / FILE))


def post(address: str, run: str, changes: list[Change]) -> None:
    """POST changes as JSON; `text` is what chat services show of it."""
    text = "\n".join(f"fedwatt {run}: {change.text}" for change in changes)
    table: dict[str, Any] = {"text": text, "run": run, "changes": [vars(one) for one in changes]}
    body = json.dumps(table, ensure_ascii=False).encode()
    request = Request(address, body, {"Content-Type": "application/json"}, method="POST")
    with urlopen(request, timeout=SECONDS):
        pass


def mail(command: str, run: str, changes: list[Change]) -> None:
    """Give changes to a command as text."""
    text = "".join(f"{change.at} {run}: {change.text}\n" for change in changes)
    subprocess.run(
        shlex.split(command), input=text.encode(), timeout=SECONDS, check=True, capture_output=True
    )
