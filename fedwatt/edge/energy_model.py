"""A model file opened for prediction: numpy and onnxruntime, one thread."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedwatt.edge.card import KEY, ROUTES_KEY, ModelCard
from fedwatt.elevation.elevation_map import MAP_KEY, map_from_text
from fedwatt.errors import DataError
from fedwatt.plugins import refers, refuse_untrusted
from fedwatt.telemetry.trip import FloatArray, IntArray
from fedwatt.windows.features import FEATURES
from fedwatt.windows.targets import TRIP_TARGETS

try:
    import onnxruntime as ort
except ImportError as problem:  # pragma: no cover
    raise DataError("Prediction needs onnxruntime: pip install 'fedwatt[edge]'.") from problem

if TYPE_CHECKING:
    from fedwatt.journeys.route_model import RouteModel


class EnergyModel:
    """A model file: card, energies [batch] of windows [batch, window, features], elevation map."""

    def __init__(self, path: str | Path, *, content: bytes | None = None) -> None:
        """Open `path`, or the `content` of a model that is no file yet."""
        self.path = Path(path)
        self._session, self.card = _open(_content(self.path) if content is None else content, path)
        for name in self.card.features:
            refuse_untrusted(name, "feature", str(path))
        notes = self._session.get_modelmeta().custom_metadata_map
        self.field = None
        if "nodes" in self.card.elevation:
            self.field = map_from_text(notes.get(MAP_KEY, ""), self.card.elevation, str(path))
        self._routes = notes.get(ROUTES_KEY)
        self._type = np.float32 if self.card.output == "scaled" else np.float64

    def routes(self) -> "RouteModel | None":
        """Return the model of the vehicle's routes; None if the file has none."""
        # Read when it is asked for: a vehicle under way does without.
        from fedwatt.journeys.route_files import model_from_text

        return None if self._routes is None else model_from_text(self._routes, str(self.path))

    def refuse_unless_telemetry(self) -> None:
        """Raise unless the model takes features that telemetry can be turned into, and gives Wh."""
        if self.card.target not in TRIP_TARGETS:
            raise DataError(
                f"{self.path} predicts {self.card.target} of single windows, which do not add up "
                "to the energy of a trip. EnergyModel.energies gives them."
            )
        if self.card.output != "Wh":
            raise DataError(
                f"{self.path} has no vehicle's scaling in it, so it cannot turn telemetry into Wh. "
                "Export it with --vehicle FOLDER."
            )
        names = self.card.features
        unfamiliar = [n for n in names if n not in FEATURES and not refers(n, "feature")]
        if unfamiliar:
            raise DataError(
                f"{self.path} is a model for other features ({', '.join(unfamiliar)}), which this "
                f"version of fedwatt cannot make. Install the version that exported it, "
                f"{self.card.library}."
            )

    def energy(self, windows: NDArray[np.floating]) -> FloatArray:
        """Return the energy of each window, Wh, or scaled for scaled features; [batch]."""
        shape = (self.card.window, len(self.card.features))
        if windows.shape[1:] != shape:
            raise DataError(
                f"{self.path} needs windows of shape [batch, {shape[0]}, {shape[1]}]; "
                f"got {list(windows.shape)}."
            )
        fed: dict[str, NDArray[Any]] = {"windows": np.ascontiguousarray(windows, dtype=self._type)}
        return np.asarray(self._session.run(None, fed)[0], dtype=np.float64)

    def energies(self, series: NDArray[np.floating], ends: IntArray) -> FloatArray:
        """Return the energy of windows of `series` [seconds, features] ending at `ends`."""
        energies = np.empty(len(ends))
        for start in range(0, len(ends), 512):
            some = ends[start : start + 512]
            rows = some[:, None] + np.arange(1 - self.card.window, 1)
            energies[start : start + 512] = self.energy(series[rows])
        return energies


def read_card(path: Path) -> ModelCard:
    """Return the card of a model file, whatever features it names: nothing is predicted."""
    return _open(_content(path), path)[1]


def _content(path: Path) -> bytes:
    if not path.is_file():
        raise DataError(f"There is no model file '{path}'. 'fedwatt export' makes one.")
    return path.read_bytes()


def _open(content: bytes, path: str | Path) -> "tuple[ort.InferenceSession, ModelCard]":
    """Return the session and the card of a model file."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    # A few kilobytes of activations need no arena of their own.
    options.enable_cpu_mem_arena = False
    # Turn int8 weights into float32 once, on opening, instead of in every call.
    options.add_session_config_entry("session.disable_quant_qdq", "1")
    options.log_severity_level = 4
    try:
        session = ort.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    except Exception as problem:  # onnxruntime has no common base class for a file it cannot read
        raise DataError(
            f"{path} is not a whole ONNX model: it is damaged, cut off or another kind of file. "
            "Copy it again, or make it with 'fedwatt export'."
        ) from problem
    text = session.get_modelmeta().custom_metadata_map.get(KEY)
    if text is None:
        raise DataError(
            f"{path} is an ONNX model, but not one of fedwatt: it does not say which features "
            "it needs. 'fedwatt export' makes one that does."
        )
    return session, ModelCard.from_json(text, str(path))
