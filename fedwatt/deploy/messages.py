"""All that goes over the air, declared in one place and enforced where a vehicle sends.

A message is named arrays and named values. `REPLIES` lists every field of a vehicle's replies: its
type, its shape and why it is needed. A method may ask for more: what its rules declare that they
hand up besides Δ_k (`LocalRule.uploads`) and, where diagnostics are asked for, what they record.
`sealed` is the one way out of a vehicle and refuses any field that is not declared, has another
type or shape, or was not asked for; `opened` is the server's way in and checks the same. Neither
reads or writes a pickle.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from math import prod
from typing import Any, Final

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
from numpy.lib import format as npy
from numpy.typing import NDArray

from fedwatt.errors import DataError
from fedwatt.metrics import SUMS
from fedwatt.tables import Column

Value = bool | int | float | str | bytes | list[str] | list[float] | list[bytes] | list[bool]


MOST_STRATA: Final = 64
LONGEST: Final = 256
"""Of a name (in characters), a key, a digest or a sealed share (in bytes)."""


@dataclass(frozen=True)
class Content:
    """What a message says."""

    values: Mapping[str, Value] = field(default_factory=dict)
    arrays: Mapping[str, NDArray[Any]] = field(default_factory=dict)


@dataclass(frozen=True)
class Sizes:
    """Lengths that shapes refer to."""

    parameters: int = 0
    """D, of the model as the method trains it; 0 where there is none."""
    dtype: str = "float32"
    """Of the model: "float32" or "float64"."""
    words: int = 0
    """Bytes of a vector of a secure sum; 0 where there is none."""
    update: str = ""
    """Type of the numbers of Δ_k; empty: the model's."""

    def number_type(self, declared: str) -> str:
        """The type of an array that is declared so."""
        named = {"model": self.dtype, "update": self.update or self.dtype}
        return named.get(declared, declared)


@dataclass(frozen=True)
class ArrayField:
    """An array that may leave a vehicle."""

    shape: tuple[str | int, ...]
    """"D" or a number; "*" is any length up to `MOST_STRATA`, "N" up to `MOST_SUM`."""
    dtype: str
    """"model" is the model's own, "update" that of a displacement."""
    why: str


@dataclass(frozen=True)
class ValueField:
    """A value that may leave a vehicle."""

    kind: type
    why: str
    most: int = MOST_STRATA
    """Longest list."""
    longest: int = LONGEST
    """Characters or bytes of a text, or of each item of a list."""


ReplyField = ArrayField | ValueField

MOST_SUM: Final = 10_000
"""Vehicles of a secure sum."""
MOST: Final[Mapping[str | int, int]] = {"*": MOST_STRATA, "N": MOST_SUM}
"""Longest of the lengths that shapes leave open."""
MOST_WORDS: Final = 2**26
"""Bytes of a vector of a secure sum; of one exchange they are in `Sizes`."""
NUMBERS: Final = ("bool", "int8", "int32", "int64", "float16", "float32", "float64")
"""Types of the numbers in a message."""
MOST_AXES: Final = 4

SECURE: Final = "secure."
"""Prefix of what belongs to a secure sum in a question."""
MADE: Final = "made."
"""Prefix of what a question says of how its model was made (`privacy.check_words.Made`)."""

_EXCHANGE: Final = {
    "exchange": ValueField(bytes, "which secure sum this belongs to"),
    "vehicle": ValueField(str, "its name"),
}
"""What every reply in a secure sum begins with."""
_STRATA: Final[Mapping[str, ReplyField]] = {
    "strata": ValueField(list, "names of the strata, such as 'speed: under 20 km/h'"),
    "sums": ArrayField(("*", len(SUMS)), "float64", "error sums of its test windows in each"),
}


def _masked(what: str) -> dict[str, ReplyField]:
    """A vector under masks."""
    return {
        **_EXCHANGE,
        "words": ValueField(bytes, f"{what} under masks, random", longest=MOST_WORDS),
    }


REPLIES: Final[dict[str, Mapping[str, ReplyField]]] = {
    "enrol": {
        "vehicle": ValueField(str, "its name, which keys its random draws"),
        "enough": ValueField(bool, "whether it has windows to train on and to judge a model by"),
        "features": ValueField(list, "names of its features: all vehicles must have the same"),
        "simulated": ValueField(bool, "whether its energy is simulated"),
        "version": ValueField(str, "of fedwatt on board"),
    },
    "train": {
        "round": ValueField(int, "which round this answers"),
        "windows": ValueField(int, "n_k, the weight of this reply"),
        "delta": ArrayField(("D",), "update", "Δ_k, what training moved"),
    },
    "evaluate": {
        "validation": ArrayField((len(SUMS),), "float64", "error sums of its validation windows"),
        "test": ArrayField((len(SUMS),), "float64", "error sums of its test windows"),
    },
    # Where a question of these two brings a level model along, the sums are of what the vehicle
    # would predict with both. Sums that equal those of the level model alone tell that it uses no
    # other.
    "strata": _STRATA,
    # After fine-tuning on board: the same sums of the vehicle's own model, and not the model.
    "personalise": _STRATA,
    # With secure sums the kinds below take the place of "train" and of those above.
    "secure-keys": _EXCHANGE
    | {
        "mask_key": ValueField(bytes, "a public key, for masks of pairs of vehicles"),
        "cipher_key": ValueField(bytes, "a public key, for what vehicles send each other"),
        "public": ValueField(bytes, "its lasting public key"),
        "voucher": ValueField(bytes, "the depot's signature of that key and its name"),
        "signature": ValueField(bytes, "its own of the two keys for this sum"),
    },
    "secure-shares": _EXCHANGE
    | {
        "ciphertexts": ValueField(list, "shares that others can read", most=MOST_SUM),
        "commitment": ValueField(bytes, "digest of a random seed"),
    },
    "secure-train": _masked("its reply to a round"),
    "secure-evaluate": _masked("its error sums of a model"),
    "secure-strata": _masked("its error sums of a model by stratum"),
    "secure-personalise": _masked("the same of its own model, which stays on board"),
    # Of one length for all vehicles, wherever they drove.
    "secure-terrain": _masked("its counts or sums over agreed nodes"),
    "secure-routes": _masked("its counts or sums over agreed places, or sums of what routes took,"),
    "secure-agree": _EXCHANGE
    | {
        "signature": ValueField(bytes, "its own of who is in the sum and who survived"),
        "follows": ValueField(bool, "whether it knows how the model of the sum came about"),
    },
    "secure-reveal": _EXCHANGE
    | {"shares": ValueField(list, "one share of a secret of every neighbour", most=MOST_SUM)},
    # A relay answers for its vehicles, and adds up what they answer.
    "relay-roster": {
        "names": ValueField(list, "its vehicles", most=MOST_SUM),
        "there": ValueField(list, "which of them are there now", most=MOST_SUM),
        "simulated": ValueField(list, "and whose energy is simulated", most=MOST_SUM),
        "windows": ArrayField(("N", 3), "int64", "n_k of each, all 0 where masks hide them"),
        "levels": ValueField(int, "relays between the furthest of them and who asks"),
    },
    "relay-sum": {
        "words": ValueField(bytes, "the sum of its vehicles' words", longest=MOST_WORDS),
        "counted": ValueField(bytes, "a bit for each: whether it is in it", longest=MOST_SUM),
        "trouble": ValueField(str, "why there is no sum; empty if there is one"),
        "sent": ValueField(bool, "whether masked vectors were asked for"),
    },
    # The field comes from the server; what a vehicle learns on top of it stays on board.
    "terrain-field": {"field": ValueField(str, "digest of the published field, received")},
    "driving-field": {"field": ValueField(str, "digest of the driving field, received")},
}
"""What leaves a vehicle, by what it was asked."""

MESSAGE_TYPES: Final = {kind: f"query.{kind.replace('-', '_')}" for kind in REPLIES} | {
    "train": "train",
    "evaluate": "evaluate",
    "strata": "evaluate.strata",
    "personalise": "train.personalise",
    "secure-train": "train.secure",
    "secure-evaluate": "evaluate.secure",
    "secure-strata": "evaluate.secure_strata",
    "secure-personalise": "train.secure_personalise",
}
"""How Flower calls a question: a query, unless a model is trained or judged."""


IN_THE_CLEAR: Final[Mapping[str, ReplyField]] = {
    "windows": ArrayField((3,), "int64", "n_k: training, validation and test windows")
}
"""What a vehicle enrols with besides, where no masks hide it."""
AWAY: Final[Mapping[str, ReplyField]] = {
    "away": ValueField(float, "seconds until the hours in which it answers, outside of them")
}
"""What a vehicle enrols with besides, where it answers at some hours only."""
IS_RELAY: Final[Mapping[str, ReplyField]] = {
    "relay": ValueField(bool, "whether this is a relay, which answers for vehicles of its own")
}
"""What a relay enrols with besides."""


@dataclass(frozen=True)
class ReplyForm:
    """What a reply may hold."""

    kind: str
    """Of the question; all fields that `REPLIES` has for it must be there."""
    sizes: Sizes = field(default_factory=Sizes)
    more: Mapping[str, ReplyField] = field(default_factory=dict)
    """Further fields that the question asks for; they may be left out."""


def diagnostic_fields(records: Iterable[Column]) -> dict[str, ReplyField]:
    """The fields in which vehicles report what the rules of a method record."""
    return {column.name: ValueField(float, column.meaning) for column in records}


def sealed(form: ReplyForm, content: Content) -> RecordDict:
    """A vehicle's reply as it is sent; DataError if anything in it is not declared."""
    _refuse_undeclared(form, content.values, content.arrays)
    return to_records(content)


def opened(form: ReplyForm, records: RecordDict) -> Content:
    """What a reply says; DataError if it is not as declared, before any array is read."""
    values = _only(records.config_records, "values")
    _refuse_undeclared(form, values, _only(records.array_records, "arrays"))
    return from_records(records)


def to_records(content: Content) -> RecordDict:
    """A message as Flower carries it."""
    return all_records([content])[0]


def all_records(contents: Sequence[Content]) -> list[RecordDict]:
    """Messages as Flower carries them; what is the same in several of them is made once.

    A round's questions to a thousand vehicles hold one model, and differ in a number or two.
    """
    same: dict[tuple[Any, ...], ArrayRecord] = {}
    records: dict[int, RecordDict] = {}
    for content in contents:
        if id(content) in records:
            continue
        key = tuple((name, *_memory(array)) for name, array in content.arrays.items())
        if key not in same:
            arrays = {name: Array(np.asarray(v, order="C")) for name, v in content.arrays.items()}
            same[key] = ArrayRecord(arrays)
        values = ConfigRecord(dict(content.values))
        records[id(content)] = RecordDict({"arrays": same[key], "values": values})
    return [records[id(content)] for content in contents]


def _memory(array: NDArray[Any]) -> tuple[Any, ...]:
    """Where an array lies and how it is read: the same for two that must be equal."""
    return array.__array_interface__["data"][0], array.shape, array.dtype.str, array.strides


def from_records(records: RecordDict) -> Content:
    """A message from Flower's records; DataError if they cannot be read."""
    arrays = {n: _decoded(n, a) for n, a in _only(records.array_records, "arrays").items()}
    return Content(dict(_only(records.config_records, "values")), arrays)


def _decoded(name: str, array: Array) -> NDArray[Any]:
    """The array, if its bytes are those that NumPy writes for its type and shape.

    The header is compared and never parsed: a forged one could ask for any memory, and what its
    parser raises has no end.
    """
    shape, trouble = tuple(array.shape), f"array '{name[:40]}' cannot be read"
    lengths = all(type(n) is int and 0 <= n <= len(array.data) for n in shape)
    if array.dtype not in NUMBERS or len(shape) > MOST_AXES or not lengths:
        raise DataError(trouble)
    dtype = np.dtype(array.dtype).newbyteorder("<")
    size = prod(shape) * dtype.itemsize
    if size > len(array.data):
        raise DataError(trouble)
    header = _header(dtype, shape)
    if len(array.data) != len(header) + size or not array.data.startswith(header):
        raise DataError(trouble)
    found = np.frombuffer(array.data, dtype, offset=len(header)).reshape(shape)
    # Torch counts a truth value of 255 as 255.
    if dtype == np.bool_ and (found.view(np.uint8) > 1).any():
        raise DataError(trouble)
    return found.copy()


def _header(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    """The first bytes of a NumPy file."""
    file = BytesIO()
    about = {"descr": npy.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    npy.write_array_header_1_0(file, about)
    return file.getvalue()


def _only(records: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """The one record there may be."""
    if set(records) - {name}:
        raise DataError(f"there are records besides '{name}'")
    found: Mapping[str, Any] = records.get(name, {})
    return found


def _refuse_undeclared(
    form: ReplyForm, values: Mapping[str, Value], arrays: Mapping[str, NDArray[Any] | Array]
) -> None:
    """DataError unless all fields are declared and of the declared types and shapes."""
    kind, required = form.kind, REPLIES[form.kind]
    declared = {**form.more, **required}
    names = {*values, *arrays}
    missing, unknown = required.keys() - names, names - declared.keys()
    both = set(values) & set(arrays)
    if both or missing or unknown:
        wrong = sorted(both | missing | unknown)[0][:40]
        trouble = "missing" if missing else "not declared for this question"
        raise DataError(f"a reply to '{kind}': field '{wrong}' is {trouble}")
    for name, value in values.items():
        if fault := _value_fault(value, declared[name]):
            raise DataError(f"a reply to '{kind}': '{name}' is {fault}")
    for name, array in arrays.items():
        if not _as_declared(array, declared[name], form.sizes):
            raise DataError(
                f"a reply to '{kind}': '{name}' is {str(array.dtype)[:40]}"
                f"{list(array.shape)[:4]}, which is not what was declared"
            )


def _value_fault(value: Value, known: ReplyField) -> str:
    """What is wrong with a value; empty if it is as declared."""
    if not isinstance(known, ValueField) or type(value) is not known.kind:
        return "not what was declared"
    texts = value if isinstance(value, list) else [value]
    long = any(len(t) > known.longest for t in texts if isinstance(t, str | bytes))
    return "too long" if len(texts) > known.most or long else ""


def _as_declared(array: NDArray[Any] | Array, known: ReplyField, sizes: Sizes) -> bool:
    """Whether an array, or what Flower's record says of it, has the declared type and shape."""
    if not isinstance(known, ArrayField) or len(array.shape) != len(known.shape):
        return False
    return str(array.dtype) == sizes.number_type(known.dtype) and all(
        0 <= have <= MOST[want]
        if want in MOST
        else have == (sizes.parameters if want == "D" else want)
        for have, want in zip(array.shape, known.shape, strict=True)
    )
