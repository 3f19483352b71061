"""The file of a run in which driving styles are: RUN/styles.json."""

import json
from pathlib import Path
from typing import Final

from fedwatt.errors import RunError
from fedwatt.files import parse_json, write_text
from fedwatt.styles import Styles

STYLES_FILE: Final = "styles.json"


def write_styles(run: Path, found: Styles) -> Path:
    """Write what was found into the run folder, and return the file."""
    write_text(run / STYLES_FILE, json.dumps(found.to_json(), indent=1) + "\n")
    return run / STYLES_FILE


def read_styles(run: Path) -> Styles | None:
    """What was found in a run; None where nobody has looked."""
    file = run / STYLES_FILE
    if not file.exists():
        return None
    try:
        return Styles.from_json(parse_json(file.read_text(encoding="utf-8")))
    except (ValueError, TypeError, KeyError, AttributeError) as problem:
        raise RunError(
            f"{file} is damaged: {problem!r}. 'fedwatt styles {run}' writes it again."
        ) from problem
