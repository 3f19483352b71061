"""When an operator wants to be told: limits on a fleet's numbers, and what goes beyond them now."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from math import inf
from pathlib import Path
from typing import Any, Final

from fedwatt.deploy.operate.fleet_view import FleetView
from fedwatt.deploy.server.run_state import FINISHED
from fedwatt.errors import SettingError, check, counted, unknown
from fedwatt.files import parse_toml
from fedwatt.settings import from_table

GB: Final = 1e9
DAY: Final = 86_400.0


@dataclass(frozen=True, kw_only=True)
class AlertRules:
    """Limits; 0 switches one off, and inf that of the error."""

    server: bool = True
    """Whether the fleet's server must answer."""
    no_model_minutes: float = 60.0
    """Longest time without a completed round while the run is not finished."""
    reply_share: float = 0.5
    """Least share of the vehicles asked in the latest round that must have answered."""
    error_above: float = inf
    """Largest test error of a round's model, in the unit of its target."""
    error_over_best: float = 1.5
    """Largest test error of a round's model, as a multiple of the method's best round."""
    disk_free_gb: float = 2.0
    """Least free disk where the run is."""
    certificate_days: float = 30.0
    """Fewest days that a certificate of the key store must still hold."""
    vehicle_failures: int = 5
    """Rounds in a row with a trouble after which a vehicle is reported."""

    def __post_init__(self) -> None:
        for name in ("no_model_minutes", "disk_free_gb", "certificate_days", "vehicle_failures"):
            check(self, name, getattr(self, name) >= 0, "at least 0 (0 switches it off)")
        check(self, "reply_share", 0 <= self.reply_share <= 1, "from 0 to 1 (0 switches it off)")
        check(self, "error_above", self.error_above > 0, "above 0 (inf switches it off)")
        over = self.error_over_best
        check(self, "error_over_best", over == 0 or over > 1, "above 1, or 0 to switch it off")


@dataclass(frozen=True, kw_only=True)
class Send:
    """Destinations of alerts besides RUN/alerts.jsonl and the log."""

    webhook: str = ""
    """Address that gets each change as a POST of JSON."""
    mail: str = ""
    """Command that gets each change as text on its standard input; no shell reads it."""

    def __post_init__(self) -> None:
        known = not self.webhook or self.webhook.startswith(("http://", "https://"))
        check(self, "webhook", known, "an address that begins with http:// or https://")


@dataclass(frozen=True)
class AlertSettings:
    """The content of a file such as alerts.toml."""

    rules: AlertRules = field(default_factory=AlertRules)
    send: Send = field(default_factory=Send)

    @classmethod
    def read(cls, path: Path) -> "AlertSettings":
        """Return the settings in a TOML file; SettingError if it holds anything else."""
        try:
            table = parse_toml(path.read_text(encoding="utf-8"))
        except FileNotFoundError as error:
            raise SettingError(f"There is no file '{path}' with alerts.") from error
        except (OSError, ValueError) as error:
            raise SettingError(f"'{path}' cannot be read as TOML: {error}.") from error
        for name in table:
            if name not in ("alerts", "send"):
                raise SettingError(unknown("section of alerts", name, ("alerts", "send")))
        return cls(
            from_table(AlertRules, table.get("alerts", {}), "alerts"),
            from_table(Send, table.get("send", {}), "send"),
        )


@dataclass(frozen=True)
class Alert:
    """One thing that is beyond its limit."""

    name: str  # of the rule
    subject: str  # the vehicle, method or certificate that it is about; empty: the run
    about: str  # a sentence for people

    @property
    def key(self) -> tuple[str, str]:
        """Identity of an alert, whatever its numbers."""
        return self.name, self.subject


def beyond_limits(view: FleetView, rules: AlertRules) -> list[Alert]:
    """Return everything that is beyond its limit now."""
    with view.lock:
        view.refresh()
        parts = (_server, _no_model, _replies, _errors, _disk, _certificates, _vehicles)
        return [alert for part in parts for alert in part(view, rules)]


NAMES: Final = (
    "server", "no_model", "replies", "error", "disk", "certificate", "vehicle",
)  # fmt: skip
"""Of all rules."""


def _server(view: FleetView, rules: AlertRules) -> Iterator[Alert]:
    if rules.server and view.server is not None and not view.server.up:
        yield Alert("server", "", view.server.why)


def _no_model(view: FleetView, rules: AlertRules) -> Iterator[Alert]:
    """From the last round on, or from the run's first sign where there was none."""
    run = view.run
    state = view.run.state
    if not rules.no_model_minutes or state is None or state.status == FINISHED:
        return
    began = datetime.fromisoformat(run.began).timestamp() if run.began else view.clock()
    minutes = (view.clock() - (run.last_model() or began)) / 60
    if minutes > rules.no_model_minutes:
        about = f"no round was completed for {minutes:.0f} minutes. The run is {state.doing}"
        yield Alert("no_model", "", about)


def _replies(view: FleetView, rules: AlertRules) -> Iterator[Alert]:
    run = view.run
    replies = view.run.replies()
    asked = len(run.in_round) - replies.get("spare", 0) - replies.get("away", 0)
    answered = replies.get("answered", 0)
    if asked and answered < rules.reply_share * asked:
        method, round = run.latest
        vehicles = f"{answered} of {counted(asked, 'vehicle')}"
        about = f"{vehicles} did what round {round} of {method or 'the beginning'} asked of them"
        yield Alert("replies", "", about)


def _errors(view: FleetView, rules: AlertRules) -> Iterator[Alert]:
    """Of each method's last round."""
    for method, own in view.run.rounds.items():
        errors = {n: _error(line) for n, line in own.items() if _error(line) is not None}
        if not errors:
            continue
        last = errors[max(errors)]
        best = min(errors.values())
        limit = rules.error_above
        if rules.error_over_best:
            limit = min(limit, rules.error_over_best * best)
        if last > limit:
            about = f"test error {last:.4g} {view.run.unit} in round {max(errors)} of {method}"
            yield Alert("error", method, f"{about}, above {limit:.4g}")


def _error(line: dict[str, Any]) -> Any:
    return line["rows"][0].get("test_rmse")


def _disk(view: FleetView, rules: AlertRules) -> Iterator[Alert]:
    free = view.disk_free()
    if free is not None and free < rules.disk_free_gb * GB:
        yield Alert("disk", "", f"{free / GB:.2g} GB are free where {view.run.folder} is")


def _certificates(view: FleetView, rules: AlertRules) -> Iterator[Alert]:
    for name, ends in (view.server.certificates() if view.server else {}).items():
        days = (ends - view.clock()) / DAY
        if days < rules.certificate_days:
            how = (
                "'fedwatt deploy request' and 'sign' renew it"
                if name == "server"
                else ("the owner makes a new one")
            )
            when = f"ends in {days:.0f} days" if days > 0 else "has ended"
            yield Alert("certificate", name, f"the {name} certificate {when}; {how}")


def _vehicles(view: FleetView, rules: AlertRules) -> Iterator[Alert]:
    for row in view.rows:
        times = row["failing"]
        if rules.vehicle_failures and times >= rules.vehicle_failures and row["state"] != "revoked":
            about = f"{row['vehicle']}: {row['state']}, {counted(times, 'round')} in a row"
            yield Alert("vehicle", row["vehicle"], f"{about}: {row['reason']}")
