"""Everything that a vehicle reads from its server and everything that leaves it.

`REQUESTS` lists every field of every request, `REPLIES` every field of every reply with its type,
its shape and its reason. A method may add the uploads that its rules declare
(`LocalRule.uploads`) and, where the plan asks for diagnostics, the numbers that they record.
`sealed` is the only way out of a vehicle and refuses undeclared fields; `checked_request` refuses
requests with undeclared fields; `opened` is the server's way in and checks replies once more.

A reply begins with its status: "done", "failed" (the reason stays in the vehicle's log), "away"
(outside its hours, with the seconds until then) or "refused" (with the name of the setting of its
acceptance file).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedwatt.deploy.wire import Content, pack, unpack
from fedwatt.errors import DataError
from fedwatt.methods import Method
from fedwatt.metrics import SUMS
from fedwatt.models import Model
from fedwatt.tables import Column

DONE: Final = "done"
FAILED: Final = "failed"
AWAY: Final = "away"
REFUSED: Final = "refused"

SECURE: Final = "secure."
"""Prefix of the fields of secure aggregation in a request."""
BROADCAST: Final = "broadcast."
"""Prefix of the arrays that a method's server rule sends with the model."""

_TASK: Final = {"method": str}
_ROUND: Final = _TASK | {"round": int}
REQUESTS: Final[Mapping[str, Mapping[str, type]]] = {
    "enrol": {"signed_plan": bytes},
    "train": _ROUND | {"counted": int, "population": int, "population_windows": float},
    "evaluate": _ROUND,
    "evaluate-personalised": _ROUND,
    "final": _ROUND,
    "personalise": _ROUND,
    "elevation": {"number": int, "count": bool, "evaluated": int, "segment_s": int},
    "routes": {"number": int, "asks": str},
    "elevation-map": {"extend": bool},
    "driving-map": {},
    "sum-keys": {},
    "sum-shares": {},
    "sum-agree": {},
    "sum-reveal": {},
}
"""Values of each request besides its kind, the plan's digest and fields of secure aggregation."""
MODEL_KINDS: Final = ("train", "evaluate", "evaluate-personalised", "final", "personalise")
"""Requests about a model: its weights and the broadcast of its method."""
PLACE_KINDS: Final = ("elevation", "routes")
"""Requests for sums over places, which only secure aggregation answers."""
MAP_KINDS: Final = ("elevation-map", "driving-map")
SUM_STEPS: Final = ("sum-keys", "sum-shares", "sum-agree", "sum-reveal")
SUMMED: Final = (*MODEL_KINDS, *PLACE_KINDS)
"""Requests whose replies are vectors of a secure aggregation, where the plan has it."""
VECTOR: Final = "sum-vector"

MOST_STRATA: Final = 64
MOST_VEHICLES: Final = 10_000
LONGEST: Final = 256
"""Characters of a name, bytes of a key, digest, signature or sealed share."""
LARGEST_CERTIFICATE: Final = 2_000
LARGEST_VECTOR: Final = 2**26


@dataclass(frozen=True)
class Sizes:
    """Lengths that shapes refer to."""

    parameters: int = 0
    """D of the model as the method trains it."""
    dtype: str = "float32"
    """Of the model."""
    words: int = 0
    """Bytes of a vector of secure aggregation."""


@dataclass(frozen=True)
class ArrayField:
    """An array that may leave a vehicle."""

    shape: tuple[str | int, ...]
    """"D" or a number; "*" is any length up to `MOST_STRATA`."""
    dtype: str
    """"model" is the model's own."""
    why: str


@dataclass(frozen=True)
class ValueField:
    """A value that may leave a vehicle."""

    kind: type
    why: str
    most: int = 1
    """Longest list."""
    longest: int = LONGEST
    """Characters or bytes of a text, or of each item of a list."""


ReplyField = ArrayField | ValueField

_SUM: Final[dict[str, ReplyField]] = {
    "exchange": ValueField(bytes, "which secure aggregation this belongs to"),
    "vehicle": ValueField(str, "its name"),
}
_STRATA: Final[Mapping[str, ReplyField]] = {
    "strata": ValueField(list, "names such as 'speed: under 20 km/h'", most=MOST_STRATA),
    "sums": ArrayField(("*", len(SUMS)), "float64", "error sums of its test windows in each"),
}
_ERRORS: Final[Mapping[str, ReplyField]] = {
    "validation": ArrayField((len(SUMS),), "float64", "error sums of its validation windows"),
    "test": ArrayField((len(SUMS),), "float64", "error sums of its test windows"),
}
REPLIES: Final[Mapping[str, Mapping[str, ReplyField]]] = {
    "enrol": {
        "vehicle": ValueField(str, "its name, which keys its random draws"),
        "enough": ValueField(bool, "whether it has windows to train on and to evaluate with"),
        "version": ValueField(str, "of fedwatt in the vehicle"),
    },
    # The five kinds below are sent only under plans without secure aggregation.
    "train": {
        "windows": ValueField(int, "n_k, the weight of this update"),
        "delta": ArrayField(("D",), "model", "Δ_k, the update"),
    },
    "evaluate": _ERRORS,
    "evaluate-personalised": _ERRORS,
    "final": _STRATA,
    "personalise": _STRATA,
    # Maps come from the server; the vehicle confirms what it has.
    "elevation-map": {"map": ValueField(str, "digest of the map received")},
    "driving-map": {"map": ValueField(str, "digest of the map received")},
    # Secure aggregation.
    "sum-keys": _SUM
    | {
        "mask_key": ValueField(bytes, "a public key for masks of pairs of vehicles"),
        "cipher_key": ValueField(bytes, "a public key for messages between vehicles"),
        "public": ValueField(bytes, "the public key of its certificate"),
        "voucher": ValueField(bytes, "its certificate", longest=LARGEST_CERTIFICATE),
        "signature": ValueField(bytes, "its signature of the two keys"),
    },
    "sum-shares": _SUM
    | {
        "ciphertexts": ValueField(list, "sealed shares for its neighbours", most=MOST_VEHICLES),
        "commitment": ValueField(bytes, "digest of a random seed"),
    },
    VECTOR: _SUM
    | {"words": ValueField(bytes, "its contribution under masks", longest=LARGEST_VECTOR)},
    "sum-agree": _SUM | {"signature": ValueField(bytes, "of who is in the sum and who survived")},
    "sum-reveal": _SUM
    | {"shares": ValueField(list, "one share of each neighbour's secret", most=MOST_VEHICLES)},
}
"""All that leaves a vehicle, by request."""

WINDOWS: Final[Mapping[str, ReplyField]] = {
    "windows": ArrayField((3,), "int64", "n_k: training, validation and test windows")
}
"""Enrolment under a plan without secure aggregation also tells these."""


class VehicleFailed(DataError):
    """A vehicle could not compute a reply."""


class VehicleAway(DataError):
    """A vehicle is outside its hours for so many seconds."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"it is outside its hours for {seconds:.0f} s more")
        self.seconds = seconds


class VehicleRefused(DataError):
    """A vehicle does not accept the plan."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"its acceptance file refuses the plan: {reason}")
        self.reason = reason


@dataclass(frozen=True)
class ReplyForm:
    """The fields that a reply must have, and those that it may have."""

    kind: str
    sizes: Sizes = field(default_factory=Sizes)
    more: Mapping[str, ReplyField] = field(default_factory=dict)

    @property
    def largest(self) -> int:
        """Return the most bytes of such a reply."""
        total = 4_096
        for declared in {**self.more, **REPLIES[self.kind]}.values():
            if isinstance(declared, ValueField):
                longest = declared.longest
                if declared.longest == LARGEST_VECTOR:
                    longest = self.sizes.words
                total += declared.most * (longest + 16) + 64
            else:
                lengths = [_most(length, self.sizes) for length in declared.shape]
                total += int(np.prod(lengths)) * 8 + 64
        return total


def _most(length: str | int, sizes: Sizes) -> int:
    if length == "D":
        return sizes.parameters
    return MOST_STRATA if length == "*" else int(length)


def training_form(method: Method, model: Model, precision: str, *, diagnostics: bool) -> ReplyForm:
    """Return the fields of an update of a method, with its records for `diagnostics`."""
    adapted = method.adapted(model)
    why = f"upload for {type(method.server).__name__}"
    more: dict[str, ReplyField] = {
        name: ArrayField(tuple(row.shape), _dtype(row), why)
        for name, row in method.uploads(adapted).items()
    }
    if diagnostics:
        more |= diagnostic_fields(method.records)
    return ReplyForm("train", Sizes(adapted.layout.size, precision), more)


def diagnostic_fields(records: Iterable[Column]) -> dict[str, ReplyField]:
    """Return the fields in which vehicles report what the rules of a method record."""
    return {column.name: ValueField(float, column.meaning) for column in records}


def _dtype(template: Tensor) -> str:
    return "model" if template.dtype == torch.float32 else str(template.dtype).split(".")[-1]


def checked_request(body: bytes, largest: int) -> tuple[str, Content]:
    """Return the kind and content of a request; DataError if it has undeclared fields."""
    request = unpack(body, largest)
    values = dict(request.values)
    kind = values.get("kind")
    if not isinstance(kind, str) or kind not in REQUESTS:
        raise DataError(f"a request of kind '{str(kind)[:40]}' is unknown")
    declared = {"kind": str} | dict(REQUESTS[kind])
    if kind != "enrol":
        declared["plan"] = str
    for name, expected in declared.items():
        if type(values.pop(name, None)) is not expected:
            raise DataError(f"a request '{kind}' lacks its '{name}'")
    secure = kind in SUMMED or kind in SUM_STEPS
    extra = [name for name in values if not (secure and name.startswith(SECURE))]
    arrays = request.arrays
    if kind in MODEL_KINDS:
        extra += [n for n in arrays if n != "weights" and not n.startswith(BROADCAST)]
    elif kind not in (*PLACE_KINDS, *MAP_KINDS):
        extra += list(arrays)
    if extra:
        raise DataError(f"a request '{kind}' has the undeclared field '{min(extra)[:40]}'")
    return kind, request


def sealed(form: ReplyForm, content: Content) -> bytes:
    """Return a reply as it is sent; DataError if anything in it is not declared."""
    _refuse_undeclared(form, content)
    return pack(content.with_values(status=DONE))


def failure(status: str, **values: float | str) -> bytes:
    """Return a reply that holds no result."""
    return pack(Content({"status": status, **values}))


def opened(form: ReplyForm, body: bytes) -> Content:
    """Return a reply's content; DataError if it is not as declared, or holds no result."""
    content = unpack(body, form.largest)
    values = dict(content.values)
    status = values.pop("status", None)
    if status == AWAY and isinstance(seconds := values.get("seconds"), float):
        raise VehicleAway(min(max(seconds, 0.0), 26 * 3600.0))
    if status == REFUSED and isinstance(reason := values.get("reason"), str):
        raise VehicleRefused("".join(c for c in reason if c.isalnum() or c in "_ ")[:40])
    if status != DONE:
        raise VehicleFailed("it could not compute a reply; its own log says why")
    content = Content(values, content.arrays)
    _refuse_undeclared(form, content)
    return content


def _refuse_undeclared(form: ReplyForm, content: Content) -> None:
    """Raise DataError unless all fields are declared, of the declared types and shapes."""
    required = REPLIES[form.kind]
    declared = {**form.more, **required}
    names = {*content.values, *content.arrays}
    missing = required.keys() - names
    unknown = names - declared.keys()
    if missing or unknown:
        wrong = min(missing | unknown)[:40]
        trouble = "missing" if missing else "not declared for this request"
        raise DataError(f"a reply to '{form.kind}': field '{wrong}' is {trouble}")
    for name, value in content.values.items():
        if fault := _value_fault(value, declared[name]):
            raise DataError(f"a reply to '{form.kind}': '{name}' is {fault}")
    for name, array in content.arrays.items():
        if not _fits(array, declared[name], form.sizes):
            raise DataError(
                f"a reply to '{form.kind}': '{name}' is {array.dtype}{list(array.shape)[:4]}, "
                "which is not what was declared"
            )


def _value_fault(value: Any, declared: ReplyField) -> str:
    """Return what is wrong with a value; empty if it is as declared."""
    if not isinstance(declared, ValueField) or type(value) is not declared.kind:
        return "not what was declared"
    texts = value if isinstance(value, list) else [value]
    if isinstance(value, list) and len({type(text) for text in texts}) > 1:
        return "a list of several types"
    long = any(len(text) > declared.longest for text in texts if isinstance(text, str | bytes))
    return "too long" if len(texts) > declared.most or long else ""


def _fits(array: NDArray[Any], declared: ReplyField, sizes: Sizes) -> bool:
    """Tell whether an array has the declared type and shape."""
    if not isinstance(declared, ArrayField) or len(array.shape) != len(declared.shape):
        return False
    dtype = sizes.dtype if declared.dtype == "model" else declared.dtype
    lengths = zip(array.shape, declared.shape, strict=True)
    return str(array.dtype) == dtype and all(
        have <= MOST_STRATA if want == "*" else have == _most(want, sizes) for have, want in lengths
    )
