"""The model card: a model file's description of itself, JSON in the file's metadata.

A model is worth nothing without knowing which numbers to feed it: the card names its features in
order with their units, the window, the time between samples, and where the model came from.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from fedwatt.errors import DataError
from fedwatt.files import parse_json

KEY = "fedwatt"
ROUTES_KEY = "fedwatt.routes"
"""Names of the texts in a model file's metadata: the card, and the vehicle's model of routes."""
FORMAT = 2


@dataclass(frozen=True, kw_only=True)
class ModelCard:
    """Everything a caller has to agree with before it asks for a prediction.

    features, units    columns of a window, in order
    window, interval_s samples in a window and seconds between them
    vehicle            whose scaling is in the graph; "" for a model of scaled features
    output             unit of a prediction, such as "Wh"; "scaled" for a model of scaled features
    target             what a window predicts (`fedwatt.windows.targets`); only "energy" adds up to
                       trips
    backbone, form     the network, and how its weights are kept: float32, float16 or int8
    loss_wh            RMSE in Wh that `form` adds on the vehicle's test windows, None if not known
    calibration        prediction intervals of the vehicle (`calibration.Calibration`), or empty
    elevation          where climb comes from: "source" is "field" (a map in the file: its nodes,
                       cell_m and hash), "elevation", or "auto", elevation first and then the map;
                       empty where no feature needs climb
    personalised       whether the model is the vehicle's own: fine-tuned, or given by its method
    trips              "training", "validation" -> names of the vehicle's trips that the model, its
                       scaling or its error bars were made with
    without_elevation  prediction intervals of windows whose climb is unknown
                       (`calibration.Calibration`), or empty
    lag_s              seconds by which the vehicle's motion is delayed before features are made
    network_weight     what the network counts in a mixture with ridges; 1 where there is none
    about              what people should know of it, coarsely (`fedwatt.edge.about`): "trained_on",
                       "errors", "privacy", "licence"; empty in files of earlier versions
    trip_prior         how a trip's residuals usually hang together, in Wh, for predictions that
                       learn from the trip under way (`journeys.filter.TripPrior`); or empty
    balance            bounded correction of whole trips (`journeys.mixture.TripBalance`), with the
                       scaling of features and labels that it needs; or empty
    """

    features: tuple[str, ...]
    units: tuple[str, ...]
    window: int
    interval_s: float
    method: str
    run_hash: str
    library: str
    backbone: str
    vehicle: str = ""
    output: str = "scaled"
    form: str = "float32"
    loss_wh: float | None = None
    calibration: dict[str, Any] = field(default_factory=dict)
    elevation: dict[str, Any] = field(default_factory=dict)
    personalised: bool = False
    trips: dict[str, list[str]] = field(default_factory=dict)
    without_elevation: dict[str, Any] = field(default_factory=dict)
    lag_s: float = 0.0
    network_weight: float = 1.0
    trip_prior: dict[str, float] = field(default_factory=dict)
    target: str = "energy"
    balance: dict[str, Any] = field(default_factory=dict)
    about: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> str:
        """Return the card as text."""
        return json.dumps({"format": FORMAT, **asdict(self)}, ensure_ascii=False, allow_nan=False)

    @staticmethod
    def from_json(text: str, where: str) -> "ModelCard":
        """Return the card in a file's metadata; `where` is named if it is none."""
        try:
            fields_read = parse_json(text)
            if fields_read.pop("format") != FORMAT:
                raise ValueError("another format")
            fields_read["features"], fields_read["units"] = (
                tuple(fields_read["features"]),
                tuple(fields_read["units"]),
            )
            return ModelCard(**fields_read)
        except (ValueError, TypeError, KeyError, AttributeError) as problem:
            raise DataError(
                f"{where} was written by another version of fedwatt ({problem}). "
                "Export it again with 'fedwatt export'."
            ) from problem

    def role_of(self, trip: str, vehicle: str) -> str:
        """Return the use of a trip when the model was made: "training", "validation", or ""."""
        if vehicle != self.vehicle:
            return ""
        return next((role for role, names in self.trips.items() if trip in names), "")

    def refuse_other_features(self, features: Sequence[str], where: str) -> None:
        """Raise unless `features` are the model's own, in its order."""
        if tuple(features) == self.features:
            return
        missing = [name for name in self.features if name not in features]
        extra = [name for name in features if name not in self.features]
        parts = []
        if missing:
            parts.append(f"it also needs {', '.join(missing)}")
        if extra:
            parts.append(f"it does not know {', '.join(extra)}")
        raise DataError(
            f"{where} is a model for other features ({', '.join(self.features)}): "
            f"{' and '.join(parts) or 'their order is another'}. "
            "Use the features it was trained with, or export a run that was trained with yours."
        )
