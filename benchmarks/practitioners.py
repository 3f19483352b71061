"""Baselines that practitioners use, on the trips and splits of fedwatt's journeys.

    python -m venv PEERS && PEERS/bin/pip install -e . 'routee.powertrain[scikit]' lightgbm
    PEERS/bin/python -m benchmarks.practitioners --fleet FLEET
    python -m benchmarks.practitioner_tables

Needs an environment of its own: routee.powertrain 2.0.2 asks for older onnxruntime and pandas than
constraints.txt. FLEET is made by `fedwatt data import ved PATH --powertrain ev,phev-electric --out
FLEET`; of it the 12 vehicles with 20 or more usable all-electric trips. Five splits each; a part
that is in the record is left as it is, unless `--again` is given.

"routes"   before departure, test trips of 2 km and more: RouteE's random forest of each vehicle, of
           all vehicles together (with temperature, mass and time since start), its bundled
           Chevrolet Bolt, and the vehicle's mean Wh/km; beside fedwatt's forecast
"windows"  speed known: RouteE of each vehicle, whole trips
"trees"    speed known: boosted trees of all vehicles with learned elevation, on windows of 60 s and
           whole trips; also with fedwatt's memory of each vehicle's earlier trips. Like "windows"
           with and without measured climate power

RouteE's features, length of links and forest are chosen on validation trips of the first split, for
each row by itself; its models are then trained on training and validation trips of every split.
Boosted trees know the vehicle's name and stop early on validation windows.

results/practitioners.json holds relative errors by vehicle and test trip, and RMSE by vehicle, so
that differences to fedwatt are computed again without training.
"""

import argparse
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.journeys_networks import elevated, settings
from benchmarks.practitioner_links import (
    LENGTHS_M,
    LinkedTrips,
    links_before_departure,
    links_with_speed,
)
from benchmarks.ved_trips import LEAST_M, NAMES, vehicles_of
from fedwatt.edge.calibration import CalibrationTrip
from fedwatt.edge.card import ModelCard
from fedwatt.edge.trips import outcome, past_trips
from fedwatt.elevation.settings import ElevationSettings
from fedwatt.files import write_text
from fedwatt.journeys.memory import remembered_offset, trip_coldness
from fedwatt.telemetry import Vehicle
from fedwatt.telemetry.trip import FloatArray, IntArray
from fedwatt.windows import DataSettings, build_client
from fedwatt.windows.client import split_of_trips
from fedwatt.windows.features import feature_names

RECORD = Path(__file__).resolve().parents[1] / "results" / "practitioners.json"
SEEDS = (0, 1, 2, 3, 4)
SHARED_BY = ElevationSettings().minimum_vehicles
BOLT = "chevrolet/bolt_bev/2017/rf_c3326385/v1"
USUAL = ("speed_mph", "grade_percent")
WEATHER = (*USUAL, "temperature_c", "minutes")
STOPS = (*WEATHER, "standing_share", "drive_per_m")
CLIMATE = ("climate_kw",)
FORESTS = ({"max_depth": 10, "min_samples_split": 10}, {"max_depth": 8, "min_samples_split": 40})
TREES = 100
TUNING_TREES = 40
SPLIT_SEED = 1
FOREST_NUMBERS = range(len(FORESTS))
BOOSTED = {
    "objective": "regression",
    "metric": "rmse",
    "learning_rate": 0.1,
    "num_leaves": 63,
    "min_child_samples": 60,
    "max_bin": 127,
    "feature_fraction": 0.6,
    "bagging_fraction": 0.8,
    "bagging_freq": 1,
    "num_threads": 1,
    "verbosity": -1,
    "seed": 1,
    "deterministic": True,
}
PLAIN = "learned elevation"
WITH_MEMORY = "learned elevation, earlier trips"
ROUNDS = 800
PATIENCE = 40


# ------------------------------------------------------------------------------- RouteE
@dataclass(frozen=True)
class ForestSetup:
    """RouteE's features, the length of its links and the shape of its forest."""

    features: tuple[str, ...]
    length_m: int
    forest: int


def setups(
    feature_sets: Sequence[tuple[str, ...]], lengths: Sequence[int], forests: Sequence[int]
) -> list[ForestSetup]:
    """Return all set-ups that validation trips choose among."""
    return [ForestSetup(*chosen) for chosen in product(feature_sets, lengths, forests)]


def quick_forest(links: pd.DataFrame, setup: ForestSetup) -> Callable[[pd.DataFrame], FloatArray]:
    """Return kWh of links by the forest that RouteE's trainer fits, without its model file."""
    from sklearn.ensemble import RandomForestRegressor

    forest = RandomForestRegressor(
        n_estimators=TUNING_TREES, random_state=52, **FORESTS[setup.forest]
    )
    columns = list(setup.features)
    forest.fit(links[columns].to_numpy(), (links["kwh"] / links["distance"]).to_numpy())

    def predict(new: pd.DataFrame) -> FloatArray:
        return np.asarray(forest.predict(new[columns].to_numpy()) * new["distance"].to_numpy())

    return predict


def routee_forest(links: pd.DataFrame, setup: ForestSetup) -> Callable[[pd.DataFrame], FloatArray]:
    """Return kWh of links by RouteE-Powertrain itself: its trainer, its model, its predict."""
    import routee.powertrain as pt
    from routee.powertrain.trainers.sklearn_random_forest import SklearnRandomForestTrainer

    config = pt.ModelConfig(
        vehicle_description="VED",
        powertrain_type=pt.PowertrainType.BEV,
        make="ved",
        model="ved",
        year=2018,
        feature_set=[pt.DataColumn(name=name, units="") for name in setup.features],
        distance=pt.DataColumn(name="distance", units="miles"),
        target=pt.DataColumn(name="kwh", units="kwh"),
        # Measured energy needs no correction for the real world.
        real_world_adjustment_factor=1.0,
        test_size=one_link(len(links)),
        random_seed=SPLIT_SEED,
    )
    trainer = SklearnRandomForestTrainer(n_estimators=TREES, cores=1, **FORESTS[setup.forest])
    model = trainer.train(links.copy(), config)
    return lambda new: model.predict(new)["kwh"].to_numpy()


def one_link(links: int) -> float:
    """Return the share that makes RouteE's own test split, which only fills a report, one link.

    It tests the links whose draw, uniform in [0, 1), is at least 1 - share; none is an error.
    """
    draws = np.sort(np.random.RandomState(SPLIT_SEED).rand(links))
    return 1.0 - float(draws[-2:].mean())


def bundled_bolt(new: pd.DataFrame) -> FloatArray:
    """Return kWh of links by RouteE's bundled Chevrolet Bolt of 2017, as it is shipped."""
    import routee.powertrain as pt

    # The package's own copy: `load_model` would ask a model hub on the network first.
    bundled = pt.package_root() / "resources" / "bundled_registry" / "v2" / BOLT
    return np.asarray(pt.Model.from_file(bundled).predict(new)["kwh"].to_numpy())


def trip_wh(links: pd.DataFrame, kwh: FloatArray) -> pd.Series:
    """Return energies by vehicle and trip from those of links."""
    return 1000 * pd.Series(kwh, index=links.index).groupby([links["vehicle"], links["trip"]]).sum()


def fitted_wh(
    links: pd.DataFrame,
    setup: ForestSetup,
    pooled: bool,
    taught: Sequence[str],
    requested: str,
    train: Callable[[pd.DataFrame, ForestSetup], Callable[[pd.DataFrame], FloatArray]],
) -> pd.Series:
    """Return energies of the trips of split `asked` by forests of each vehicle, or one of all."""
    groups = [links] if pooled else [group for _, group in links.groupby("vehicle", sort=False)]
    predicted = []
    for group in groups:
        training = group[group["split"].isin(taught)]
        new = group[group["split"] == requested]
        predicted.append(trip_wh(new, train(training, setup)(new)))
    return pd.concat(predicted)


def chosen_setup(data: LinkedTrips, candidates: Sequence[ForestSetup], pooled: bool) -> ForestSetup:
    """Return the set-up with the least mean absolute relative error on validation trips."""
    measured = data.trips.set_index(["vehicle", "trip"])["wh"]

    def error(setup: ForestSetup) -> float:
        links = data.links[setup.length_m]
        predicted = fitted_wh(links, setup, pooled, ("train",), "validation", quick_forest)
        true = measured[predicted.index]
        of_size = true > 200  # a ratio to almost nothing would choose
        return float(np.abs(predicted / true - 1)[of_size].mean())

    return min(candidates, key=error)


def routee(data: LinkedTrips, setup: ForestSetup, pooled: bool) -> pd.Series:
    """Return energies of test trips by models of training and validation trips."""
    taught = ("train", "validation")
    return fitted_wh(data.links[setup.length_m], setup, pooled, taught, "test", routee_forest)


class Tuned:
    """The set-ups of the record; one that is missing is chosen when it is first asked for."""

    def __init__(self, rows: dict[str, Any]) -> None:
        self.rows = rows

    def setup(
        self, row: str, data: LinkedTrips, candidates: Sequence[ForestSetup], pooled: bool = False
    ) -> ForestSetup:
        """Return the set-up of a row."""
        if row not in self.rows:
            best = chosen_setup(data, candidates, pooled)
            self.rows[row] = {"features": list(best.features), "length_m": best.length_m}
            self.rows[row]["forest"] = best.forest
        setup = self.rows[row]
        return ForestSetup(tuple(setup["features"]), setup["length_m"], setup["forest"])


def errors_of(energies: pd.Series, trips: pd.DataFrame) -> dict[str, dict[str, float]]:
    """Return relative errors of test trips, %, by vehicle and trip; NaN without a forecast."""
    tested = trips[trips["split"] == "test"].set_index(["vehicle", "trip"])["wh"]
    off = 100 * (energies.reindex(tested.index) / tested - 1).abs()
    errors: dict[str, dict[str, float]] = {}
    for (vehicle, trip), error in off.items():
        errors.setdefault(str(vehicle), {})[str(trip)] = round(float(error), 3)
    return errors


def route_split(folder: Path, seed: int, tuned: Tuned) -> dict[str, Any]:
    """Return all rows of a split before departure."""
    data = links_before_departure(vehicles_of(folder), seed)
    tested = data.trips[data.trips["split"] == "test"].set_index(["vehicle", "trip"])
    split = {name: tested[name] for name in ("fedwatt", "mean Wh/km")}
    row = "RouteE, forest of the vehicle"
    setup = tuned.setup(row, data, setups((USUAL, WEATHER, STOPS), LENGTHS_M, FOREST_NUMBERS))
    split[row] = routee(data, setup, pooled=False)
    row = "RouteE, forest of all vehicles"
    sets = ((*WEATHER, "mass_kg"), (*STOPS, "mass_kg"))
    setup = tuned.setup(row, data, setups(sets, LENGTHS_M, (0,)), pooled=True)
    split[row] = routee(data, setup, pooled=True)
    links = data.links[300]
    new = links[links["split"] == "test"]
    split["RouteE, bundled Chevrolet Bolt"] = trip_wh(new, bundled_bolt(new))
    rows = {row: errors_of(energies, data.trips) for row, energies in split.items()}
    return {"errors_percent": rows}


# ------------------------------------------------------------------------ boosted trees
def summaries(series: FloatArray, ends: IntArray, window: int) -> FloatArray:
    """Return mean, the means of both halves and spread of each feature, [windows, 4 · features].

    Each window by itself and rounded: noise of sums over the whole series would tell trees where in
    it a window lies.
    """
    parts = []
    for some in np.array_split(ends, len(ends) // 4096 + 1):
        rows = series[some[:, None] + np.arange(1 - window, 1)]
        halves = (rows[:, : window // 2].mean(axis=1), rows[:, window // 2 :].mean(axis=1))
        parts.append(np.hstack([rows.mean(axis=1), *halves, rows.std(axis=1)]))
    return np.concatenate(parts).round(4).astype(np.float32)


@dataclass(frozen=True, eq=False)
class BoostedModel:
    """Boosted trees with the interface of a model file that `edge.trips` needs."""

    booster: Any
    number: int
    card: ModelCard
    field: None = None

    def refuse_unless_telemetry(self) -> None:
        """Accept: the trees take physical features and predict Wh."""

    def energies(self, series: FloatArray, ends: IntArray) -> FloatArray:
        """Wh of the windows of physical features [seconds, features] that end at `ends`."""
        x = with_vehicle(summaries(series, ends, self.card.window), self.number)
        return np.asarray(self.booster.predict(x, num_threads=1))


def with_vehicle(x: FloatArray, number: int) -> FloatArray:
    """Return features with the number of the vehicle as their last column."""
    return np.column_stack([x, np.full(len(x), number, dtype=np.float32)])


@dataclass(frozen=True, eq=False)
class BoostedData:
    """Features and energies in Wh of all vehicles' windows, by split and vehicle."""

    x: Mapping[str, list[FloatArray]]
    y: Mapping[str, list[FloatArray]]


def window_data(vehicles: Sequence[Vehicle], data: DataSettings) -> BoostedData:
    """Return the windows that fedwatt's models are trained and evaluated on."""
    x: dict[str, list[FloatArray]] = {"train": [], "validation": [], "test": []}
    y: dict[str, list[FloatArray]] = {"train": [], "validation": [], "test": []}
    for number, vehicle in enumerate(vehicles):
        client = build_client(vehicle, data)
        assert client.scaler is not None
        series = client.series.astype(np.float64) * client.scaler.scale + client.scaler.center
        for part in x:
            means = summaries(series, client.ends[part], client.window)
            x[part].append(with_vehicle(means, number))
            y[part].append(client.energy_wh(client.labels[part]).astype(np.float64))
    return BoostedData(x, y)


def boosted(data: BoostedData) -> Any:
    """Return boosted trees of all vehicles, stopped early by their validation windows."""
    import lightgbm

    last = data.x["train"][0].shape[1] - 1
    x = np.concatenate(data.x["train"])
    y = np.concatenate(data.y["train"])
    train = lightgbm.Dataset(x, y, categorical_feature=[last])
    x = np.concatenate(data.x["validation"])
    y = np.concatenate(data.y["validation"])
    held = train.create_valid(x, y)
    stop = lightgbm.early_stopping(PATIENCE, verbose=False)
    return lightgbm.train(BOOSTED, train, ROUNDS, valid_sets=[held], callbacks=[stop])


def boosted_rows(
    vehicles: Sequence[Vehicle], settings_of_split: DataSettings
) -> dict[str, dict[str, Any]]:
    """Return RMSE of test windows, Wh, and errors of test trips, %, by row and vehicle.

    The second row adds what each vehicle's earlier trips took beyond the trees' predictions, by
    fedwatt's own memory.
    """
    booster = boosted(window_data(vehicles, settings_of_split))
    names = feature_names(settings_of_split.features)
    description: dict[str, Any] = {"method": "", "run_hash": "", "library": "", "backbone": "mlp"}
    units = tuple("" for _ in names)
    card = ModelCard(
        features=names, units=units, window=60, interval_s=1.0, output="Wh", **description
    )
    rows: dict[str, dict[str, Any]] = {
        row: {"rmse_wh": {}, "errors_percent": {}} for row in (PLAIN, WITH_MEMORY)
    }
    for number, vehicle in enumerate(vehicles):
        scale_wh = build_client(vehicle, settings_of_split).label_scale_wh
        model: Any = BoostedModel(booster, number, replace(card, vehicle=vehicle.name))
        splits = split_of_trips(vehicle, settings_of_split)
        tested = [trip for trip in vehicle.trips if splits.get(trip.name) == "test"]
        plain = [outcome(model, trip, vehicle.name) for trip in tested]
        past = past_trips(model, vehicle.trips, scale_wh)
        offsets = [
            scale_wh * remembered_offset(past, trip.start_time_s, trip_coldness(trip))
            for trip in tested
        ]
        for row, offsets_wh in ((PLAIN, [0.0] * len(tested)), (WITH_MEMORY, offsets)):
            off = [
                (made.windows_wh + offset_wh - made.measured_wh)[::5]
                for made, offset_wh in zip(plain, offsets_wh, strict=True)
            ]
            rmse_wh = float(np.sqrt(np.mean(np.concatenate(off) ** 2)))
            rows[row]["rmse_wh"][vehicle.name] = round(rmse_wh, 3)
            rows[row]["errors_percent"][vehicle.name] = {
                trip.name: _error(made, offset_wh * made.seconds / 60)
                for trip, made, offset_wh in zip(tested, plain, offsets_wh, strict=True)
                if trip.metres >= LEAST_M
            }
    return rows


def _error(made: CalibrationTrip, added_wh: float) -> float:
    """Return the error of a trip's energy, %."""
    return round(100 * abs((made.trip_wh + added_wh) / made.trip_measured_wh - 1), 3)


def tree_split(folder: Path, seed: int) -> dict[str, Any]:
    """Return rows of boosted trees on one split."""
    rows: dict[str, Any] = {"rmse_wh": {}, "errors_percent": {}}
    vehicles = elevated(folder, seed, SHARED_BY)
    for inputs, suffix in (("climate", ""), ("no-climate", ", without climate power")):
        for name, cells in boosted_rows(vehicles, settings(seed, inputs)).items():
            for kind, values in cells.items():
                rows[kind][f"boosted trees, {name}{suffix}"] = values
    return rows


def speed_split(folder: Path, seed: int, tuned: Tuned) -> dict[str, Any]:
    """Return rows of RouteE with known speed on one split."""
    learned = elevated(folder, seed, SHARED_BY)
    splits = {vehicle.name: split_of_trips(vehicle, settings(seed)) for vehicle in learned}
    links = links_with_speed(learned, splits)
    rows = {}
    for name, more in (("with climate power", CLIMATE), ("without climate power", ())):
        row = f"RouteE, forest of the vehicle, {name}"
        sets = ((*USUAL, *more), (*WEATHER, *more), (*STOPS, *more))
        setup = tuned.setup(row, links, setups(sets, LENGTHS_M, FOREST_NUMBERS))
        rows[row] = errors_of(routee(links, setup, pooled=False), links.trips)
    return {"errors_percent": rows}


# -------------------------------------------------------------------------------- record
def main() -> None:
    """Train and evaluate the baselines of all missing splits."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fleet", type=Path, required=True)
    parser.add_argument("--parts", nargs="+", default=["routes", "windows", "trees"])
    parser.add_argument("--again", action="store_true", help="measure recorded splits again")
    parser.add_argument("--record", type=Path, default=RECORD)
    options = parser.parse_args()
    logging.disable(logging.INFO)
    record: dict[str, Any] = {"vehicles": list(NAMES)}
    if options.record.exists():
        record = json.loads(options.record.read_text(encoding="utf-8"))
    tuned = Tuned(record.setdefault("setups", {}))
    work: dict[str, tuple[Sequence[int], Callable[[int], dict[str, Any]]]] = {
        "routes": (SEEDS, lambda seed: route_split(options.fleet, seed, tuned)),
        "windows": (SEEDS, lambda seed: speed_split(options.fleet, seed, tuned)),
        "trees": (SEEDS, lambda seed: tree_split(options.fleet, seed)),
    }
    for part in options.parts:
        seeds, measure = work[part]
        for seed in seeds:
            results = record.setdefault(part, {})
            if str(seed) in results and not options.again:
                continue
            results[str(seed)] = measure(seed)
            write_text(options.record, json.dumps(record, indent=None) + "\n")
            for row, errors in results[str(seed)]["errors_percent"].items():
                all_ = [error for by_vehicle in errors.values() for error in by_vehicle.values()]
                print(f"{part} {seed} {row}: median {np.nanmedian(all_):.2f} %", flush=True)


if __name__ == "__main__":
    main()
