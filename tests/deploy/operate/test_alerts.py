"""Alerts: each limit by numbers worked out by hand, each change told once, over real HTTP."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest
from typer.testing import CliRunner

from fedwatt.cli import app
from fedwatt.deploy.operate import fleet_view
from fedwatt.deploy.operate.alert_rules import Alert, AlertRules, AlertSettings, Send, beyond_limits
from fedwatt.deploy.operate.alerts import FILE, Watchman, firing
from fedwatt.deploy.operate.fleet_view import FleetView
from fedwatt.deploy.operate.server_facts import ServerFacts
from fedwatt.deploy.server.run_state import FINISHED, RunState
from fedwatt.errors import SettingError
from tests.deploy.operate.faulty import FAILS, LATE, FaultyFleet
from tests.test_docs import ROOT

OFF = AlertRules(
    server=False, no_model_minutes=0, reply_share=0, error_over_best=0, disk_free_gb=0,
    certificate_days=0, vehicle_failures=0,
)  # fmt: skip
NOON = 1_767_268_800.0  # 2026-01-01 12:00 UTC


class Clock:
    now = NOON

    def __call__(self) -> float:
        return self.now


def run_with(folder: Path, *rmse: float, status: str = "running") -> Path:
    """A run whose rounds were completed at 11:00, 11:01, ... with these test errors."""
    folder.mkdir(exist_ok=True)
    RunState(folder / "deployment.json", "1", status=status, since="2026-01-01 11:00:00").save()
    about = [
        {"event": "fleet", "unit": "Wh"},
        {"event": "start", "method": "fedavg", "done": 0, "rounds": 9},
    ]
    about += [
        {
            "event": "round",
            "method": "fedavg",
            "round": t,
            "seconds": 1.0,
            "rows": [{"test_rmse": e}],
        }
        for t, e in enumerate(rmse, start=1)
    ]
    times = ["10:50", "10:59", *(f"11:{n:02d}" for n in range(len(rmse)))]
    lines = [
        json.dumps({"at": f"2026-01-01T{time}:00+00:00", **line})
        for time, line in zip(times, about, strict=True)
    ]
    (folder / "progress.jsonl").write_text("".join(f"{line}\n" for line in lines))
    return folder


def found(view: FleetView, **rules: object) -> list[Alert]:
    return beyond_limits(view, AlertRules(**{**vars(OFF), **rules}))


def test_no_model_for_too_long(tmp_path: Path) -> None:
    view = FleetView(run_with(tmp_path / "run", 20.0, 19.0), clock=Clock())  # last at 11:01
    assert not found(view, no_model_minutes=59.5)
    (alert,) = found(view, no_model_minutes=58.5)
    assert alert.about.startswith("no round was completed for 59 minutes. The run is interrupted")
    # Before the first round the time counts from the run's first line, at 10:50.
    view = FleetView(run_with(tmp_path / "early"), clock=Clock())
    assert not found(view, no_model_minutes=70.5)
    assert found(view, no_model_minutes=69.5)
    done = FleetView(run_with(tmp_path / "done", 20.0, status=FINISHED), clock=Clock())
    assert not found(done, no_model_minutes=1)


def test_errors_above_a_band(tmp_path: Path) -> None:
    view = FleetView(run_with(tmp_path / "run", 20.0, 10.0, 14.0), clock=Clock())
    assert not found(view, error_over_best=1.4)
    (alert,) = found(view, error_over_best=1.39)
    assert alert == Alert("error", "fedavg", "test error 14 Wh in round 3 of fedavg, above 13.9")
    assert not found(view, error_above=14.0)
    assert found(view, error_above=13.9)


def test_replies_below_a_share_and_vehicles_that_go_on_failing(faulty: FaultyFleet) -> None:
    view = FleetView(faulty.run, ServerFacts(faulty.flower, faulty.nodes))
    assert not found(view, reply_share=0.5)  # 2 of 4
    (alert,) = found(view, reply_share=0.51)
    assert alert.about == "2 of 4 vehicles did what round 3 of fedavg asked of them"
    assert not found(view, vehicle_failures=4)
    # The revoked one is asked no more, which is as its operator wanted it.
    assert [alert.subject for alert in found(view, vehicle_failures=3)] == [FAILS, LATE]


def test_certificates_disk_and_server(faulty: FaultyFleet, monkeypatch: pytest.MonkeyPatch) -> None:
    store = ServerFacts(faulty.flower, faulty.nodes)
    ends = store.certificates()
    clock = Clock()
    clock.now = ends["server"] - 20 * 86_400
    view = FleetView(faulty.run, store, clock=clock)
    assert not found(view, certificate_days=19)
    (alert,) = found(view, certificate_days=21)
    assert alert.subject == "server"
    assert "ends in 20 days; 'fedwatt deploy request' and 'sign' renew it" in alert.about
    monkeypatch.setattr(fleet_view.FleetView, "disk_free", lambda view: 1_900_000_000)
    assert not found(view, disk_free_gb=1.8)
    assert "1.9 GB are free" in found(view, disk_free_gb=2)[0].about
    assert not found(view, server=True)
    store.next_look = 0.0
    view.next_look = 0.0
    faulty.up = False
    try:
        assert found(view, server=True)[0].about == "No server answers at 127.0.0.1:9092."
    finally:
        faulty.up = True


@contextmanager
def webhook() -> Iterator[tuple[str, list[dict[str, object]], list[int]]]:
    """A server on loopback that keeps what is posted; a status from the list is answered first."""
    posted: list[dict[str, object]] = []
    statuses: list[int] = []

    class Hook(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            status = statuses.pop(0) if statuses else 204
            if status == 204:
                posted.append(json.loads(body))
            self.send_response(status)
            self.end_headers()

        def log_message(self, format: str, *values: object) -> None: ...

    server = HTTPServer(("127.0.0.1", 0), Hook)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/hook", posted, statuses
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_an_onset_and_a_recovery_are_told_once_each(tmp_path: Path) -> None:
    run = run_with(tmp_path / "run", 20.0, 10.0, 30.0)
    clock = Clock()
    mails = tmp_path / "mails"
    with webhook() as (address, posted, statuses):
        settings = AlertSettings(
            AlertRules(**{**vars(OFF), "error_over_best": 2.0}),
            Send(webhook=address, mail=f"tee -a {mails}"),
        )
        watchman = Watchman(FleetView(run, clock=clock), settings)
        for _ in range(3):
            watchman.look()
            clock.now += 60
        # Another process, such as one that cron starts, knows what was told.
        assert Watchman(FleetView(run, clock=clock), settings).look() == []
        assert len(posted) == 1
        assert posted[0]["text"] == (
            "fedwatt run: error: test error 30 Wh in round 3 of fedavg, above 20"
        )
        assert posted[0]["changes"][0]["change"] == "fires"
        assert watchman.counts()["error"] == 1
        run_with(run, 20.0, 10.0, 30.0, 11.0)
        statuses.append(500)  # what did not arrive is told again
        assert [change.change for change in watchman.look()] == ["recovered"]
        assert len(posted) == 1
        clock.now += 60
        assert watchman.look() == []
        assert len(posted) == 2
        assert posted[1]["text"].startswith("fedwatt run: error: recovered: test error 30 Wh")
    assert not firing(run)
    assert [line.split(": ")[1] for line in mails.read_text().splitlines()] == ["error", "error"]
    assert len((run / FILE).read_text().splitlines()) == 2


def test_the_command_for_cron_ends_with_1_while_something_fires(tmp_path: Path) -> None:
    run = run_with(tmp_path / "run", 20.0, 10.0, 30.0, status=FINISHED)
    own = ["deploy", "alerts", str(run), "--store", str(tmp_path / "none")]
    done = CliRunner().invoke(app, own)
    assert done.exit_code == 1
    assert "error since" in done.output
    run_with(run, 20.0, 10.0, 30.0, 11.0, status=FINISHED)
    done = CliRunner().invoke(app, own)
    assert done.exit_code == 0
    assert "Nothing is beyond its limit." in done.output


def test_settings_are_refused_with_the_reason(tmp_path: Path) -> None:
    file = tmp_path / "alerts.toml"
    for text, reason in (
        ("[alert]\n", "Unknown section of alerts 'alert'. Did you mean 'alerts'"),
        ("[alerts]\nno_model = 5\n", "Unknown setting in alerts 'no_model'"),
        ("[alerts]\nreply_share = 50\n", "reply_share must be from 0 to 1"),
        ("[send]\nwebhook = 'example.org'\n", "webhook must be an address that begins with http"),
        ("[alerts\n", "cannot be read as TOML"),
    ):
        file.write_text(text)
        with pytest.raises(SettingError, match=reason):
            AlertSettings.read(file)
    with pytest.raises(SettingError, match="There is no file"):
        AlertSettings.read(tmp_path / "none.toml")


def test_the_example_of_the_docs_has_every_setting_with_its_default(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "operating.md").read_text(encoding="utf-8")
    example = text.partition('```toml title="alerts.toml"\n')[2].partition("```")[0]
    (tmp_path / "alerts.toml").write_text(example)
    settings = AlertSettings.read(tmp_path / "alerts.toml")
    assert settings.rules == AlertRules()
    assert settings.send.webhook and settings.send.mail
    assert all(f"{name} = " in example for name in vars(AlertRules()))
