"""A web server for one page: the run's log from a byte on, and its report when that is there.

    GET /                the page
    GET /progress?from=B the complete lines of progress.jsonl from byte B on
    GET /report          report.html of the finished run

It listens on this machine alone and reads nothing but these files.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from functools import cached_property
from pathlib import Path

from fedwatt.report.page import fill
from fedwatt.report.style import LOOKS
from fedwatt.report.web_server import Response, answering
from fedwatt.runs.observers import FILE


class LivePage:
    """The live page of one run."""

    def __init__(self, run: Path) -> None:
        self.run = run

    @cached_property
    def page(self) -> str:
        """Return the page as text; its script asks for the log."""
        looks = {
            name: {"name": look.name, "light": look.colour, "dark": look.dark}
            for name, look in LOOKS.items()
        }
        return fill(
            "fedwatt.report",
            "live.html.jinja",
            run=self.run.name,
            looks=looks,
            light={},
            dark={},
        )

    def lines(self, start: int) -> bytes:
        """Return the complete lines of the log from byte `start` on; none without a log."""
        try:
            with (self.run / FILE).open("rb") as log:
                log.seek(start)
                text = log.read()
        except FileNotFoundError:
            return b""
        return text[: text.rfind(b"\n") + 1]

    def answer(self, path: str, query: Mapping[str, str]) -> Response | None:
        """Return the response for "/", "/progress" or "/report"; None for other paths."""
        report = self.run / "report.html"
        if path == "/":
            return Response(self.page.encode())
        if path == "/progress":
            start = query.get("from", "0")
            lines = self.lines(int(start) if start.isdecimal() else 0)
            return Response(lines, "application/x-ndjson; charset=utf-8")
        return Response(report.read_bytes()) if path == "/report" and report.is_file() else None


def serving(run: Path, *, port: int) -> AbstractContextManager[str]:
    """Serve the page of a run and yield its address; port 0 is any that is free."""
    return answering(LivePage(run).answer, port=port)
