"""Ownership of a run folder: one run never overwrites or continues another."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from fedwatt.errors import RunError
from fedwatt.files import holding
from fedwatt.runs.config import RunConfig, Track, differences, from_toml, to_toml
from fedwatt.runs.deployment import Deployment
from fedwatt.runs.provenance import hash_of
from fedwatt.runs.user_code import changed_since, sentence


def refuse_other_run(config: RunConfig, out: Path, resume: bool) -> None:
    """Raise if `out` holds a run that this one would overwrite or could not continue."""
    path = out / "config.toml"
    if not path.exists():
        return
    if not resume:
        raise RunError(
            f"{out} already holds a run. Continue it with --resume, or choose another --out."
        )
    text = path.read_text(encoding="utf-8")
    stored = from_toml(text, str(path))
    if changed := changed_since(text, stored.plugins):
        raise RunError(
            f"{sentence(changed, f'the run in {out} was begun')} A run goes on as it was begun: "
            "put the code back, or choose another --out."
        )
    if run_hash(stored) != run_hash(config):
        other = differences(_what_counts(stored), _what_counts(config))
        raise RunError(
            f"{out} holds a run with another configuration: {'; '.join(other)}. A run goes on as "
            "it was begun, its number of rounds included. Leave these changes out, or choose "
            "another --out."
        )


@contextmanager
def claim(config: RunConfig, out: Path, resume: bool) -> Iterator[None]:
    """Keep every other process from writing into `out`; RunError if one does, or another run's is.

    The lock ends with the process, however that ends.
    """
    taken = f"Another process is writing into {out}. Wait for its end, or choose another --out."
    with holding(out, "folder", taken):
        refuse_other_run(config, out, resume)
        yield


def run_hash(config: RunConfig) -> str:
    """Return a hash of all that determines the numbers of a run."""
    return hash_of([to_toml(_what_counts(config))])


def _what_counts(config: RunConfig) -> RunConfig:
    """Return the configuration without deadlines of a real fleet and trackers, which may change."""
    return replace(config, deploy=Deployment(), track=Track())
