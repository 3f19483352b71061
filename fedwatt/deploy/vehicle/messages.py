"""Everything that a vehicle reads from its server and everything that leaves it.

`REQUESTS` lists every field of every request, `REPLIES` every field of every reply with its type
and its shape. A method may add the uploads that its rules declare (`LocalRule.uploads`).
`sealed` is the only way out of a vehicle and refuses undeclared fields; `checked_request` refuses
requests with undeclared fields; `opened` is the server's way in and checks replies once more.

A reply begins with its status: "done", "failed" (the reason stays in the vehicle's log), "away"
(outside its hours, with the seconds until then) or "refused" (with the name of the setting of its
acceptance file).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from fedwatt.deploy.wire import Content, pack, unpack
from fedwatt.errors import DataError
from fedwatt.methods import Method
from fedwatt.metrics import SUMS
from fedwatt.models import Model

DONE = "done"
FAILED = "failed"
AWAY = "away"
REFUSED = "refused"

SECURE = "secure."
"""Prefix of the fields of secure aggregation in a request."""
BROADCAST = "broadcast."
"""Prefix of the arrays that a method's server rule sends with the model."""

_ROUND = {"method": str, "round": int}
REQUESTS: Final[Mapping[str, Mapping[str, type]]] = {
    "enrol": {"signed_plan": bytes},
    "train": _ROUND | {"counted": int, "population": int, "population_windows": float},
    "evaluate": _ROUND,
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
MODEL_KINDS = ("train", "evaluate", "final", "personalise")
"""Requests about a model: its weights and the broadcast of its method."""
PLACE_KINDS = ("elevation", "routes")
"""Requests for sums over places, which only secure aggregation answers."""
MAP_KINDS = ("elevation-map", "driving-map")
SUM_STEPS = ("sum-keys", "sum-shares", "sum-agree", "sum-reveal")
SUMMED = (*MODEL_KINDS, *PLACE_KINDS)
"""Requests whose replies are vectors of a secure aggregation, where the plan has it."""
VECTOR = "sum-vector"

MOST_VEHICLES = 10_000
LONGEST = 256
"""Characters of a name, bytes of a key, digest, signature or sealed share."""
LARGEST_CERTIFICATE = 2_000
LARGEST_VECTOR = 2**26


@dataclass(frozen=True)
class ArrayField:
    """The shape and type of an array that may leave a vehicle."""

    shape: tuple[str | int, ...]
    """"D": the parameters of the model that a plan trains."""
    dtype: str
    """"model": that of the model."""


@dataclass(frozen=True)
class ValueField:
    """The type and largest size of a value that may leave a vehicle."""

    kind: type
    most: int = 1
    """Longest list."""
    longest: int = LONGEST
    """Characters or bytes of a text, or of each item of a list."""


ReplyField = ArrayField | ValueField

_SUM: Final[dict[str, ReplyField]] = {
    "exchange": ValueField(bytes),  # which secure aggregation this belongs to
    "vehicle": ValueField(str),  # its name
}
_TEST: Final[dict[str, ReplyField]] = {
    "test": ArrayField((len(SUMS),), "float64"),  # error sums of its test windows
}
REPLIES: Final[Mapping[str, Mapping[str, ReplyField]]] = {
    "enrol": {
        "vehicle": ValueField(str),  # its name, which keys its random draws
        "enough": ValueField(bool),  # whether it has windows to train on and to evaluate with
        "version": ValueField(str),  # of fedwatt in the vehicle
    },
    # The four kinds below are sent only under plans without secure aggregation.
    "train": {
        "windows": ValueField(int),  # n_k, the weight of this update
        "delta": ArrayField(("D",), "model"),  # Δ_k, the update
    },
    "evaluate": _TEST
    | {"validation": ArrayField((len(SUMS),), "float64")},  # the same of validation windows
    "final": _TEST,
    "personalise": _TEST,
    # Maps come from the server; the vehicle confirms what it has, by its digest.
    "elevation-map": {"map": ValueField(str)},
    "driving-map": {"map": ValueField(str)},
    # Secure aggregation.
    "sum-keys": _SUM
    | {
        "mask_key": ValueField(bytes),  # a public key for masks of pairs of vehicles
        "cipher_key": ValueField(bytes),  # a public key for messages between vehicles
        "public": ValueField(bytes),  # the public key of its certificate
        "voucher": ValueField(bytes, longest=LARGEST_CERTIFICATE),  # its certificate
        "signature": ValueField(bytes),  # its signature of the two keys
    },
    "sum-shares": _SUM
    | {
        "ciphertexts": ValueField(list, most=MOST_VEHICLES),  # sealed shares for its neighbours
        "commitment": ValueField(bytes),  # digest of a random seed
    },
    VECTOR: _SUM | {"words": ValueField(bytes, longest=LARGEST_VECTOR)},  # its masked contribution
    "sum-agree": _SUM | {"signature": ValueField(bytes)},  # of who is in the sum and who survived
    # One share of a secret of each neighbour.
    "sum-reveal": _SUM | {"shares": ValueField(list, most=MOST_VEHICLES)},
}
"""All that leaves a vehicle, by request."""

WINDOWS: Final[Mapping[str, ReplyField]] = {"windows": ArrayField((3,), "int64")}
"""Enrolment under a plan without secure aggregation also tells n_k of each split."""


class NoResult(DataError):
    """A reply without a result: its status, and the values that it has besides."""

    def __init__(self, status: str, reason: str, /, **values: float | str) -> None:
        super().__init__(reason)
        self.status = status
        self.values = values


def away(seconds: float) -> NoResult:
    """Return the reply of a vehicle that takes no part now: ask again after `seconds`."""
    return NoResult(AWAY, f"it is outside its hours for {seconds:.0f} s more", seconds=seconds)


def refused(setting: str) -> NoResult:
    """Return the reply of a vehicle whose acceptance file refuses the plan by this setting."""
    return NoResult(REFUSED, f"its acceptance file refuses the plan: {setting}", reason=setting)


@dataclass(frozen=True)
class ReplyForm:
    """The fields of a reply, all of which it must have."""

    kind: str
    more: Mapping[str, ReplyField] = field(default_factory=dict)
    """Fields with lengths that follow from the plan, in place of those of `REPLIES` or beside."""

    @property
    def fields(self) -> dict[str, ReplyField]:
        """Return all fields by name."""
        return {**REPLIES[self.kind], **self.more}

    @property
    def largest(self) -> int:
        """Return the most bytes of such a reply."""
        total = 4_096
        for declared in self.fields.values():
            if isinstance(declared, ValueField):
                total += declared.most * (declared.longest + 16) + 64
            else:
                total += prod(n for n in declared.shape if isinstance(n, int)) * 8 + 64
        return total


def enrolment_form(*, hidden: bool) -> ReplyForm:
    """Return the form of an enrolment; `hidden` by secure aggregation or not."""
    return ReplyForm("enrol", {} if hidden else WINDOWS)


def vector_form(size: int) -> ReplyForm:
    """Return the form of a contribution of so many bytes."""
    return ReplyForm(VECTOR, {"words": ValueField(bytes, longest=size)})


def training_form(method: Method, model: Model, precision: str) -> ReplyForm:
    """Return the form of an update of a method."""
    adapted = method.adapted(model)
    fields: dict[str, ReplyField] = {
        name: ArrayField(tuple(row.shape), _dtype(row, precision))
        for name, row in method.uploads(adapted).items()
    }
    return ReplyForm("train", fields | {"delta": ArrayField((adapted.layout.size,), precision)})


def _dtype(template: Tensor, precision: str) -> str:
    return precision if template.dtype == torch.float32 else str(template.dtype).split(".")[-1]


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
        raise away(min(max(seconds, 0.0), 26 * 3600.0))
    if status == REFUSED and isinstance(reason := values.get("reason"), str):
        raise refused("".join(c for c in reason if c.isalnum() or c in "_ ")[:40])
    if status != DONE:
        raise NoResult(FAILED, "it could not compute a reply; its own log says why")
    content = Content(values, content.arrays)
    _refuse_undeclared(form, content)
    return content


def _refuse_undeclared(form: ReplyForm, content: Content) -> None:
    """Raise DataError unless all fields are there, of the declared types and shapes."""
    declared = form.fields
    contents = {**content.values, **content.arrays}
    for name in sorted(declared.keys() ^ contents.keys()):
        trouble = "missing" if name in declared else "not declared for this request"
        raise DataError(f"a reply to '{form.kind}': field '{name[:40]}' is {trouble}")
    for name, value in contents.items():
        if not _fits(value, declared[name]):
            raise DataError(f"a reply to '{form.kind}': '{name}' is not what was declared")


def _fits(value: Any, declared: ReplyField) -> bool:
    """Tell whether a value has the declared type and no more than the declared size."""
    if isinstance(declared, ArrayField):
        is_array = isinstance(value, np.ndarray)
        return is_array and (value.shape, str(value.dtype)) == (declared.shape, declared.dtype)
    if type(value) is not declared.kind:
        return False
    texts = value if isinstance(value, list) else [value]
    longest = max((len(text) for text in texts if isinstance(text, str | bytes)), default=0)
    return (
        len(texts) <= declared.most
        and longest <= declared.longest
        and len({type(text) for text in texts}) <= 1
    )
