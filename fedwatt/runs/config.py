"""The configuration of a run: TOML in, checked before any work, TOML out, complete.

seeds = [1, 2, 3]
[fleet]            where the vehicles come from
[data]             how telemetry becomes windows
[model]            the network
[training]         rounds, participation, local work
[availability]     churn, lost replies, device speeds
[asynchronous]     a buffer in place of rounds
[elevation]        the elevation map, where features need climb
[personalisation]  fine-tuning in each vehicle after the rounds
[baselines]        local-only models, and one model of all data in one place
[deploy]           deadlines of a deployed fleet; a simulation ignores it
[secure]           secure aggregation of a deployed fleet; in a simulation, of elevation alone
[track]            TensorBoard, MLflow
[[method]]         one table per method: name, label, hyperparameters, learning rate
[plugins]          hashes of code that is not part of fedwatt; written, never read as a setting
"""

import json
import shlex
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import tomli_w

from fedwatt.elevation.settings import ElevationSettings
from fedwatt.errors import SettingError, check, unknown
from fedwatt.evaluation import Baselines, Personalisation
from fedwatt.federation import Asynchronous, Availability, Training
from fedwatt.files import parse_toml
from fedwatt.methods import Method, get
from fedwatt.methods.catalogue import RECOMMENDED, recipe
from fedwatt.models import Model, get_model
from fedwatt.models.catalogue import refuse_unknown
from fedwatt.plugins import named_in, short
from fedwatt.privacy.secure_settings import SecureSettings
from fedwatt.runs.provenance import Sources, sources_of
from fedwatt.settings import Checked, convert, from_table, number, to_table
from fedwatt.settings import choice as choice_field
from fedwatt.windows import DataSettings, Fleet


@dataclass(frozen=True, kw_only=True)
class Source(Checked):
    """The source of the vehicles."""

    data: str = "synthetic"
    """"synthetic", or the folder of a fleet made by `fedwatt data`."""
    vehicles: int = number(0, "[0, inf]", "(0: 20 synthetic or all stored)")
    """How many vehicles; 0: 20 synthetic ones, or all of a stored fleet."""
    seed: int = 0
    """Of the synthetic fleet."""
    trips: int = number(12, "[3, inf]", ": one to train, validate and test each")
    """Trips of each synthetic vehicle: a week or two of driving."""
    made: str = choice_field("auto", "ahead", "on-demand")
    """When vehicles are made: "ahead", all before the first round; "on-demand", each when it takes
    part; "auto": on demand from 20,000 synthetic vehicles on."""


@dataclass(frozen=True, kw_only=True)
class ModelChoice:
    """The choice of a network."""

    name: str = "mlp"
    """"mlp", "gru", "lstm", or a reference to your network, such as "./net.py:Net"."""
    hidden: tuple[int, ...] = ()
    """Widths; empty: 64-32 for the MLP, 32 for GRU and LSTM."""
    mixture: bool = False
    """Whether each vehicle mixes the network with two ridge regressions, its own and one with the
    fleet's as a prior, with weights that its validation trips ask for."""

    def __post_init__(self) -> None:
        refuse_unknown(self.name)

    def on(self, fleet: Fleet) -> Model:
        """Return the network for the windows of a fleet."""
        return get_model(
            self.name, window=fleet.window, features=len(fleet.features), hidden=self.hidden
        )


@dataclass(frozen=True, kw_only=True)
class Deployment(Checked):
    """Settings of `fedwatt deploy`; a simulation ignores them."""

    vehicles: int = number(0, "[0, inf]", "(0: those that enrol in time)")
    """Vehicles to wait for before the first round; 0: those that enrol in time."""
    enrolment_seconds: float = number(120.0, "(0, inf)")
    """Longest wait for vehicles before the first round."""
    round_seconds: float = number(600.0, "(0, inf)")
    """Deadline for the replies of a round; what comes later is lost."""
    evaluation_seconds: float = number(300.0, "(0, inf)")
    """Deadline for the error sums of a model."""
    quorum: int = number(1, "[1, inf]", "vehicle")
    """Vehicles that must be there for a round; with fewer the run pauses, and a round that fewer of
    those called have answered is asked again."""
    pause_seconds: float = number(604_800.0, "(0, inf)")
    """Longest pause for want of vehicles, a week; then the run ends and can be resumed."""
    over_selection: float = number(0.0, "[0, 2]")
    """Share of vehicles called beyond `participation`; a round, and the evaluation of its model,
    closes with the replies that it would have had without them."""
    poll_seconds: float = number(0.1, "(0, 1]")
    """Pause between two polls for replies."""
    weight_cap: float = number(5.0, "[1, inf]", "(inf switches it off)")
    """Most that a vehicle weighs in a mean, in medians of the vehicles' windows; inf: any."""
    norm_bound: float = number(5.0, "[1, inf]", "(inf switches it off)")
    """Longest reply, in medians of the replies; longer ones are shortened."""
    routes: bool = False
    """Whether vehicles also share, by secure aggregation, how they drive each place and what routes
    take, for `fedwatt route`; needs `secure.enabled` and `elevation.area`. A simulation learns it
    when it is first asked for."""


@dataclass(frozen=True, kw_only=True)
class Track:
    """Trackers beside the run folder; they change no number. Each needs its own package."""

    tensorboard: bool = False
    """Whether curves go to RUN/tensorboard, for `tensorboard --logdir RUN/tensorboard`."""
    mlflow: bool = False
    """Whether the run goes to MLflow: RUN/mlflow.db, or the server in MLFLOW_TRACKING_URI."""
    experiment: str = "fedwatt"
    """Experiment in MLflow."""


@dataclass(frozen=True)
class MethodChoice:
    """A method under a label that is unique in the run, with its own rate where it has one."""

    label: str
    method: Method
    learning_rate: float | None = None
    schedule: str | None = None

    def training(self, common: Training) -> Training:
        """Return the run's training settings with this method's own rate in them."""
        learning_rate = common.learning_rate if self.learning_rate is None else self.learning_rate
        return replace(
            common, learning_rate=learning_rate, schedule=self.schedule or common.schedule
        )


DEFAULT_METHODS = {RECOMMENDED: 0.005, "fo-ri-fedavg": 0.02}
"""What a run compares unless it names methods, each at its own rate: the one with the lowest
validation error on other fleets than the embedded one (benchmarks/first_run.py)."""


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """Everything that determines a run."""

    methods: tuple[MethodChoice, ...] = field(
        default_factory=lambda: tuple(choose(method) for method in default_methods({}))
    )
    seeds: tuple[int, ...] = (1, 2, 3)
    device: str = "auto"
    fleet: Source = Source()
    data: DataSettings = DataSettings()
    model: ModelChoice = ModelChoice()
    training: Training = Training()
    availability: Availability = Availability()
    asynchronous: Asynchronous = Asynchronous()
    elevation: ElevationSettings = ElevationSettings()
    personalisation: Personalisation = Personalisation()
    baselines: Baselines = Baselines()
    deploy: Deployment = Deployment()
    secure: SecureSettings = SecureSettings()
    track: Track = Track()
    plugins: Sources = field(default_factory=dict, repr=False)
    """Hashes of the code behind references; filled in from the code as it is now."""

    def __post_init__(self) -> None:
        names = [choice.method.name for choice in self.methods]
        sources = sources_of(names, self.model.name, self.data, self.plugins)
        object.__setattr__(self, "plugins", sources)
        labels = [choice.label for choice in self.methods]
        twice = sorted({label for label in labels if labels.count(label) > 1})
        if twice:
            raise SettingError(
                f"Two methods are called '{twice[0]}'. Give each [[method]] its own label."
            )
        check(self, "methods", bool(labels), "one or more")
        for choice in self.methods:
            fault = choice.method.server.sampling_fault(
                self.training.sampling, self.training.participation
            )
            if fault:
                raise SettingError(f"Method '{choice.label}': {fault}")
        different = len(set(self.seeds)) == len(self.seeds) >= 1
        check(self, "seeds", different, "one or more different whole numbers")
        check(self, "device", self.device in ("auto", "cpu", "cuda"), "'auto', 'cpu' or 'cuda'")


SECTIONS: dict[str, type] = {
    part.name: type(part.default) for part in fields(RunConfig) if is_dataclass(part.default)
}


def choose(table: Mapping[str, Any]) -> MethodChoice:
    """Return a [[method]] table as a choice."""
    table = dict(table)
    if "name" not in table:
        raise SettingError('A [[method]] table needs a name, such as name = "fedavg".')
    name = convert(table.pop("name"), str, "method.name")
    label = convert(table.pop("label", short(name)), str, f"{name}.label")
    if not label.isprintable() or "/" in label or label[:1] in ("", ".") or len(label) > 100:
        raise SettingError(
            f"The label {label!r} must be a plain name of at most 100 characters, without '/' and "
            "not beginning with '.': it names a folder."
        )
    settings: dict[str, Any] = {}
    for setting, kind in (("learning_rate", float), ("schedule", str)):
        if setting in table:
            settings[setting] = convert(table.pop(setting), kind, f"{name}.{setting}")
    choice = MethodChoice(label, get(name, **table), **settings)
    choice.training(Training())  # refuses a rate or schedule outside its range here, not later
    return choice


def default_methods(table: Mapping[str, Any], *, shared: bool = False) -> list[dict[str, Any]]:
    """Return [[method]] tables of a document without any; without rates where it has one for
    all.
    """
    shared = shared or "learning_rate" in table.get("training", {})
    return [
        {"name": name} if shared else {"name": name, "learning_rate": learning_rate}
        for name, learning_rate in DEFAULT_METHODS.items()
    ]


def from_toml(text: str, where: str = "The configuration", *, trusted: bool = False) -> RunConfig:
    """Return the configuration written in `text`; `where` and `trusted` as in `from_tables`."""
    return from_tables(_document(text, where), where, trusted=trusted)


def _document(text: str, where: object) -> dict[str, Any]:
    try:
        return parse_toml(text)
    except tomllib.TOMLDecodeError as error:
        raise SettingError(f"{where} is not valid TOML: {error}.") from error


def from_tables(
    table: Mapping[str, Any], where: str = "The configuration", *, trusted: bool = False
) -> RunConfig:
    """Return the configuration in a parsed TOML document, which `where` names in messages.

    `trusted`: this program wrote the text for its user, so the code that it names may run. Any
    other text may name no code that the user has not named (`fedwatt.plugins`).
    """
    refuse_misshapen(table)
    arguments: dict[str, Any] = {}
    if "seeds" in table:
        arguments["seeds"] = convert(table["seeds"], tuple[int, ...], "seeds")
    if "device" in table:
        arguments["device"] = convert(table["device"], str, "device")
    named = table.get("method", default_methods(table))
    with named_in(None if trusted else where):
        for name in (section for section in SECTIONS if section in table):
            arguments[name] = from_table(SECTIONS[name], table[name], name)
        arguments["methods"] = tuple(choose(method) for method in named)
        return RunConfig(**arguments)


def refuse_misshapen(table: Mapping[str, Any]) -> None:
    """Raise unless a document has the sections of a configuration, and tables where they belong."""
    sections = ("seeds", "device", *SECTIONS, "method", "plugins")
    for name, value in table.items():
        if name not in sections:
            raise SettingError(unknown("section or key", name, sections))
        if name in SECTIONS and not isinstance(value, dict):
            raise SettingError(f"'{name}' is a section: write its settings below [{name}].")
    methods = table.get("method", [])
    if not isinstance(methods, list) or not all(isinstance(m, dict) for m in methods):
        raise SettingError("Methods are written as [[method]] tables, in double brackets.")


def to_tables(config: RunConfig) -> dict[str, Any]:
    """Return the complete configuration as a TOML document."""
    methods = []
    for choice in config.methods:
        entry = {"learning_rate": choice.learning_rate, "schedule": choice.schedule}
        methods.append(
            {"name": choice.method.name, "label": choice.label}
            | {name: value for name, value in entry.items() if value is not None}
            | choice.method.settings
        )
    return {
        "seeds": list(config.seeds),
        "device": config.device,
        **{name: to_table(getattr(config, name)) for name in SECTIONS},
        "method": methods,
        **({"plugins": config.plugins} if config.plugins else {}),
    }


def to_toml(config: RunConfig) -> str:
    """Return the complete configuration as text; `from_toml` reads it back."""
    return tomli_w.dumps(to_tables(config))


def read_config(path: Path) -> dict[str, Any]:
    """Return the TOML document in a file: of the right shape, its values not yet checked."""
    try:
        table = _document(path.read_text(encoding="utf-8"), path)
    except FileNotFoundError as error:
        raise SettingError(f"There is no configuration file '{path}'.") from error
    except (OSError, UnicodeDecodeError) as error:
        raise SettingError(f"Cannot read the configuration file '{path}': {error}.") from error
    refuse_misshapen(table)
    return table


def override(table: dict[str, Any], assignments: Sequence[str]) -> dict[str, Any]:
    """Return a copy of a document with `key=value` assignments in it.

    A key is a section and a setting (`training.learning_rate=0.01`), a method's label and a
    hyperparameter (`fo-ri-fedavg.alpha=0.7`), or `seeds` or `device`.

    >>> override({}, ["training.rounds=5"])
    {'training': {'rounds': 5}}
    """
    result = {k: dict(v) if isinstance(v, dict) else v for k, v in table.items()}
    assigned = [_assigned(assignment) for assignment in assignments]
    shared = any(
        (section, setting) == ("training", "learning_rate") for section, setting, _ in assigned
    )
    methods = [dict(m) for m in result.get("method", default_methods(result, shared=shared))]
    labels = {label_of(method): method for method in methods}
    for section, setting, value in assigned:
        if not section:
            result[setting] = value
        elif section in labels:
            labels[section][setting] = value
            result["method"] = methods
        elif section in SECTIONS:
            result.setdefault(section, {})[setting] = value
        else:
            _refuse_absent_method(section, [*labels])
            raise SettingError(unknown("section or method", section, [*SECTIONS, *labels]))
    return result


def _assigned(assignment: str) -> tuple[str, str, Any]:
    """Split an assignment into section ("" for none), setting and value.

    >>> _assigned(" training . rate = 0.01")
    ('training', 'rate', 0.01)
    """
    key, equals, text = assignment.partition("=")
    section, dot, setting = (part.strip() for part in key.rpartition("."))
    if not equals or not setting or (dot and not section):
        raise SettingError(
            f"'{assignment}' is not of the form key=value, as in training.learning_rate=0.01."
        )
    return section, setting, _value(text.strip())


def label_of(method: Mapping[str, Any]) -> str:
    """Return the label of a [[method]] table: its own, or the name without what says where it
    is.
    """
    return str(method.get("label", short(str(method.get("name")))))


def _refuse_absent_method(name: str, labels: Sequence[str]) -> None:
    """Raise if `name` is a method, but not one of the run."""
    try:
        recipe(name)
    except SettingError:
        return
    options = shlex.join(word for label in (*labels, name) for word in ("--method", label))
    raise SettingError(
        f"'{name}' is not among the methods of this run ({', '.join(labels)}), so it has nothing "
        f"to set. Add it, with all that are wanted: {options}."
    )


def differences(old: RunConfig, new: RunConfig) -> list[str]:
    """Return the differences of two configurations; settings of methods only where both have them.

    >>> ten, twenty = ({"training": {"rounds": rounds}} for rounds in (10, 20))
    >>> differences(from_tables(ten), from_tables(twenty))
    ['training.rounds 10 → 20']
    """
    labels = [[choice.label for choice in config.methods] for config in (old, new)]
    only_one_has = {*labels[0]} ^ {*labels[1]}
    before, after = (
        settings_by_key(to_tables(config)) | {"methods": names}
        for config, names in zip((old, new), labels, strict=True)
    )
    return [
        f"{key} {_as_toml(before.get(key))} → {_as_toml(after.get(key))}"
        for key in dict.fromkeys((*before, *after))
        if before.get(key) != after.get(key)
        and key.rpartition(".")[0] not in {"plugins", *only_one_has}
    ]


def settings_by_key(tables: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a document by their keys in `override`.

    >>> settings_by_key({"training": {"rounds": 5}, "method": [{"name": "fedprox", "mu": 0.1}]})
    {'training.rounds': 5, 'fedprox.name': 'fedprox', 'fedprox.mu': 0.1}
    """
    methods = {label_of(method): method for method in tables.get("method", [])}
    return flattened({name: value for name, value in tables.items() if name != "method"} | methods)


def flattened(sections: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values in sections by section and name, and those beside them by name.

    >>> flattened({"seeds": [1], "training": {"rounds": 5, "batch": 32}})
    {'seeds': [1], 'training.rounds': 5, 'training.batch': 32}
    """
    flat: dict[str, Any] = {}
    for section, value in sections.items():
        if isinstance(value, dict):
            flat |= {f"{section}.{name}": setting for name, setting in value.items()}
        else:
            flat[section] = value
    return flat


def _as_toml(value: Any) -> str:
    """Return a value as one may write it in TOML, on one line; "nothing" where there is none."""
    return "nothing" if value is None else json.dumps(value, ensure_ascii=False)


def _value(text: str) -> Any:
    """Parse `text` as a TOML value; return it as text if it is none."""
    try:
        return parse_toml(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
