"""Record the first run: what its report says first, and its first figure.

    python -m benchmarks.first_run [--run RUN]    runs `fedwatt run` unless a run folder is given
    python -m benchmarks.first_run --check        fails if the README says anything else

Writes results/first_run.json, docs/figures/first_run.svg and the block of the README.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from benchmarks.marked import filled, write_blocks
from fedwatt.files import write_bytes, write_text
from fedwatt.runs.config import RunConfig, from_tables, from_toml, to_tables
from fedwatt.runs.defaults import choose_recipe
from fedwatt.runs.run import Run

ROOT: Final = Path(__file__).parents[1]
RECORD: Final = ROOT / "results" / "first_run.json"
FIGURE: Final = ROOT / "docs" / "figures" / "first_run.svg"
README: Final = ROOT / "README.md"
BLOCK: Final = "first run"


def first_config() -> RunConfig:
    """Return the configuration of `fedwatt run` without options."""
    return from_tables(choose_recipe({}).applied({}))


def settings(config: RunConfig) -> dict[str, Any]:
    """Return the settings that a record must share with the run that it is of."""
    tables = to_tables(config)
    return {
        "fleet": tables["fleet"],
        "seeds": tables["seeds"],
        "features": tables["data"]["features"],
        "personalised": tables["personalisation"]["enabled"],
        "rounds": tables["training"]["rounds"],
        "rates": {method["label"]: method.get("learning_rate") for method in tables["method"]},
    }


def recorded(folder: Path) -> dict[str, Any]:
    """Return what the report of a run says first, its stages and its settings."""
    from fedwatt.report.answer import answer
    from fedwatt.report.baselines import baseline_stages, federated_stages
    from fedwatt.report.load import load_run

    run = load_run(folder)
    summary = answer(run)
    stages = [*baseline_stages(run), *federated_stages(run)]
    return settings(from_toml(run.origins[0].config)) | {
        "headline": summary.headline,
        "sentences": list(summary.sentences),
        "stages": {stage.name: stage.errors for stage in stages},
    }


def block(record: dict[str, Any]) -> str:
    """Return the paragraph of the README."""
    # The headline says already which method is better.
    return f"> **{record['headline']}.** {' '.join(record['sentences'][:-1])}"


def outdated(readme: str, record: dict[str, Any]) -> bool:
    """Tell whether the README says something else than the record."""
    return filled(readme, {BLOCK: block(record)}) != readme


def drawn(folder: Path) -> bytes:
    """Return the report's first figure."""
    from fedwatt.report.figures.models import stages_figure
    from fedwatt.report.load import load_run
    from fedwatt.report.page import saved

    return saved(stages_figure(load_run(folder)))


def main() -> None:
    """Run, record, draw and write; or check."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--run", type=Path, help="a finished run of 'fedwatt run' without options")
    parser.add_argument("--check", action="store_true", help="compare the README with the record")
    options = parser.parse_args()
    if options.check:
        record = json.loads(RECORD.read_text(encoding="utf-8"))
        if outdated(README.read_text(encoding="utf-8"), record):
            sys.exit(f"The first run in {README.name} is not that of {RECORD}. Write it again.")
        return
    with tempfile.TemporaryDirectory(prefix="fedwatt-") as scratch:
        folder = options.run or Path(scratch) / "first"
        if options.run is None:
            Run(first_config(), out=folder).execute()
        record = recorded(folder)
        write_bytes(FIGURE, drawn(folder))
    write_text(RECORD, json.dumps(record, indent=1, ensure_ascii=False) + "\n")
    write_blocks(README, {BLOCK: block(record)})


if __name__ == "__main__":
    main()
