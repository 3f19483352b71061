"""Carry out a configuration on a real fleet, into the same run folder as a simulation."""

import json
import logging
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from flwr.serverapp import Grid

from fedwatt.deploy.exchange import Exchange
from fedwatt.deploy.messages import Content
from fedwatt.deploy.remote import RemoteFederation
from fedwatt.deploy.roster import Roster
from fedwatt.deploy.secure_remote import SecureFederation
from fedwatt.deploy.state import RunState
from fedwatt.deploy.terrain_remote import Hills, hills_of_run
from fedwatt.errors import SettingError
from fedwatt.federation import Availability
from fedwatt.federation.records import Row
from fedwatt.files import write_text
from fedwatt.runs.checkpoint import Origin
from fedwatt.runs.config import RunConfig, to_toml
from fedwatt.runs.environment import (
    describe_environment,
    describe_fleet,
    hash_of,
    participation_hashes,
)
from fedwatt.runs.execute import (
    Observer,
    budget_for,
    refuse_other_run,
    run_hash,
    terrain_facts,
    terrain_spending,
    train_method,
)
from fedwatt.runs.hills import learns_hills, refuse_unmaskable
from fedwatt.runs.results import RunResults

log = logging.getLogger("fedwatt.deploy")


def refuse_undeployable(config: RunConfig) -> None:
    """Raise if a configuration asks for what only a simulation can do."""
    if len(config.seeds) != 1:
        raise SettingError(
            f"A real fleet trains one model at a time, and seeds are {list(config.seeds)}. Set "
            "seeds = [1], or any one number."
        )
    if config.asynchronous.buffer:
        raise SettingError(
            "A deployment has rounds, and asynchronous.buffer asks for a buffer. Set it to 0; "
            "deploy.round_seconds keeps slow vehicles from holding up the others."
        )
    if learns_hills(config):
        if not config.secure.enabled:
            raise SettingError(
                "A real fleet learns its hills under masks only, since sums over places tell where "
                "a vehicle drives. Set secure.enabled = true and terrain.area, or put a field into "
                "every vehicle ('deploy vehicle --field') and name it in terrain.source, or use "
                "terrain.source = 'measured'."
            )
        refuse_unmaskable(config)
    ideal = Availability()
    for name in ("p_leave", "p_join", "initially", "reply_loss"):
        if getattr(config.availability, name) != getattr(ideal, name):
            raise SettingError(
                f"availability.{name} simulates what a real fleet does by itself. Leave it out."
            )
    for choice in config.methods:
        faults = [r for r in choice.method.local if hasattr(r, "fault_share")]
        if faults:
            raise SettingError(
                f"Method '{choice.label}': {type(faults[0]).__name__} simulates faulty vehicles "
                "and has no place on a real fleet."
            )


def execute(
    config: RunConfig, out: Path, grid: Grid, observer: Observer, *, resume: bool = False
) -> None:
    """Train every method of `config` on the vehicles behind `grid` and fill the run folder `out`.

    A checkpoint is written after every round; with `resume` the run goes on after the last one.
    """
    started = datetime.now(UTC)
    refuse_undeployable(config)
    refuse_other_run(config, out, resume)
    text = to_toml(config)
    run = RunState.begin(out, resume=resume)
    exchange = Exchange(grid, config.deploy.poll_seconds)
    roster = Roster(
        exchange,
        Content({"config": text}),
        config.data,
        out / "roster.json",
        config.deploy.enrolment_seconds,
        config.secure.windows_limit,
    )
    if resume:
        roster.load()
    roster.wait(config.deploy.vehicles, config.deploy.enrolment_seconds)
    fleet = roster.fleet()
    budgets = {choice.label: budget_for(config, choice, fleet) for choice in config.methods}
    kind = SecureFederation if config.secure.enabled else RemoteFederation
    for choice in config.methods:
        kind(roster, config, choice, run, text).check(choice.method)
    if learns_hills(config):
        terrain_spending(config, fleet)  # refuses noise that nobody can account for
    write_text(out / "config.toml", text)
    facts: dict[str, Any] = {}
    if learns_hills(config):
        field, teachers = hills_of_run(out, roster, config, run, text, resume=resume)
        hills = Hills(field, {"run": run.run, "config": text}, config.deploy.round_seconds)
        roster.provision = hills
        hills.wait(roster)
        facts = terrain_facts(config, fleet, field, teachers, run.learnings)
    observer.fleet_ready(fleet)
    results = RunResults(config, out)
    for choice in config.methods:
        federation = kind(roster, config, choice, run, text)
        state, history = train_method(
            federation,
            choice,
            out / "checkpoint" / choice.label,
            observer,
            Origin(run_hash(config), run.run),
            0.0,
            budgets[choice.label],
        )
        roster.refresh()
        personal: list[Row] = []
        if config.personal.enabled:
            personal = federation.personal_rows(state.best_weights)
        results.add(federation, choice, state, history, personal)
    fleet = roster.fleet()
    environment = describe_environment(federation.device) | {
        "started": started.isoformat(timespec="seconds"),
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        "seeds": list(config.seeds),
        "hashes": {
            "partition": hash_of((c.name, c.held_out, len(c.ends["train"])) for c in fleet.clients),
            "participation": {h.method: participation_hashes(h.clients) for h in results.histories},
        },
        "fleet": describe_fleet(fleet),
        "privacy": {label: asdict(own) for label, own in budgets.items() if own is not None},
        "terrain": facts,
    }
    write_text(out / "environment.json", json.dumps(environment, indent=2))
