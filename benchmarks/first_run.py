"""The README's first run: what its report says, and its curve.

    python -m benchmarks.first_run [--run RUN]    runs `fedwatt run` unless a run folder is given
    python -m benchmarks.first_run --check        whether the README says what is on record

Writes results/first_run.json, docs/figures/first_run.svg and the block of the README.
"""

import argparse
import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from benchmarks.marked import filled, write_blocks
from fedwatt.files import write_bytes, write_text
from fedwatt.observers import Observers
from fedwatt.runs import execute
from fedwatt.runs.config import RunConfig, from_toml, to_tables

ROOT: Final = Path(__file__).parents[1]
RECORD: Final = ROOT / "results" / "first_run.json"
FIGURE: Final = ROOT / "docs" / "figures" / "first_run.svg"
README: Final = ROOT / "README.md"
BLOCK: Final = "first run"


def recorded(folder: Path) -> dict[str, Any]:
    """What the report of the run in `folder` says first, and the settings that it was run with."""
    from fedwatt.report.answer import answer
    from fedwatt.report.load import load_run

    run = load_run(folder)
    said = answer(run)
    gain, methods, errors = said.sentences[:3]
    config = to_tables(from_toml(run.origins[0].config))
    return {
        "fleet": config["fleet"],
        "seeds": config["seeds"],
        "rounds": config["training"]["rounds"],
        "rates": run.rates,
        "headline": said.headline,
        "gain": gain,
        "methods": methods,
        "errors": errors,
    }


def block(record: dict[str, Any]) -> str:
    """The paragraph of the README."""
    return (
        "It answers two questions, in this order. *What does federating gain over each vehicle "
        f"alone?* {record['headline']}. {record['gain']} *Which method?* {record['methods']} "
        f"{record['errors']} Each method has its own rate, tuned on other fleets; at one rate for "
        "both, the one with shorter steps would seem to win."
    )


def outdated(readme: str, record: dict[str, Any]) -> bool:
    """Whether the README says something else than what is on record."""
    return filled(readme, {BLOCK: block(record)}) != readme


def main() -> None:
    """Run, record, draw and write; or check."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--run", type=Path, help="a finished run of the default configuration")
    parser.add_argument("--check", action="store_true", help="compare the README with the record")
    options = parser.parse_args()
    if options.check:
        record = json.loads(RECORD.read_text(encoding="utf-8"))
        if outdated(README.read_text(encoding="utf-8"), record):
            sys.exit(f"The first run in {README.name} is not that of {RECORD}. Write it again.")
        return
    scratch = Path(tempfile.mkdtemp(prefix="fedwatt-"))
    try:
        folder = options.run or scratch / "first"
        if options.run is None:
            execute(RunConfig(), folder, Observers(()))
        record = recorded(folder)
        write_bytes(FIGURE, drawn(folder))
    finally:
        shutil.rmtree(scratch)
    write_text(RECORD, json.dumps(record, indent=1, ensure_ascii=False) + "\n")
    write_blocks(README, {BLOCK: block(record)})


def drawn(folder: Path) -> bytes:
    """Error by round, as the report draws it."""
    from fedwatt.report.figures.by_round import convergence_figure
    from fedwatt.report.load import load_run
    from fedwatt.report.svg import saved

    return saved(convergence_figure(load_run(folder)))


if __name__ == "__main__":
    main()
