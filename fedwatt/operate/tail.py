"""New lines of a file that is only ever added to."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass
class Tail:
    """A place in a file of JSON lines."""

    path: Path
    at: int = 0
    """Bytes that were read."""

    def new(self) -> list[tuple[int, int, dict[str, Any]]]:
        """The complete lines since the last look, each with its first byte and its end."""
        try:
            with self.path.open("rb") as file:
                file.seek(self.at)
                found = file.read()
        except FileNotFoundError:
            return []
        lines = []
        for line in found[: found.rfind(b"\n") + 1].splitlines(keepends=True):
            lines.append((self.at, self.at + len(line), json.loads(line)))
            self.at += len(line)
        return lines

    def between(self, start: int, end: int) -> list[dict[str, Any]]:
        """The lines that begin at byte `start` and end at byte `end`."""
        with self.path.open("rb") as file:
            file.seek(start)
            return [json.loads(line) for line in file.read(end - start).splitlines() if line]
