"""The vehicle's own policy: what it answers, whoever asks.

A policy lies on board as `policy.toml`, signed by the owner or the maker of the vehicle
(`policy.sig`, Ed25519, checked against `owner.pub` beside it). Without one the defaults below hold.
It is checked before anything is computed or sent (`guard`). A question outside it is refused with
the name of the rule it breaks and nothing else, so a refusal says nothing about the vehicle's data.
"""

import tomllib
from dataclasses import dataclass, field, fields
from math import inf
from pathlib import Path
from typing import Any, Final

import tomli_w
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)

from fedwatt.errors import DataError, SettingError, check
from fedwatt.files import write_bytes, write_secret, write_text
from fedwatt.settings import from_table, to_table

POLICY: Final = "policy.toml"
SIGNATURE: Final = "policy.sig"
OWNER: Final = "owner.pub"
"""The public key that a policy on board must be signed with."""
CONTEXT: Final = b"fedwatt policy\n"
"""Signed before the file's bytes, so that no other signature of the owner's passes for this one."""

RULES: Final[dict[str, str]] = tomllib.loads(
    Path(__file__).with_name("refusals.toml").read_text(encoding="utf-8")
)
"""What the operator reads of a refusal, by the rule that a vehicle names."""


class Refusal(DataError):
    """A question that the policy does not allow."""

    def __init__(self, rule: str) -> None:
        super().__init__(RULES[rule])
        self.rule = rule


def _setting(default: Any, meaning: str) -> Any:
    return field(default=default, metadata={"meaning": meaning})


@dataclass(frozen=True, kw_only=True)
class Policy:
    """What a vehicle answers; the defaults are what one without a file of its own allows."""

    masks: bool = _setting(True, "whether its numbers leave it only inside sums under masks")
    smallest_sum: int = _setting(3, "fewest vehicles that such a sum may be of")
    signed_sums: bool = _setting(True, "whether every vehicle of a sum must sign its keys")
    followed: int = _setting(
        2,
        "vehicles of a sum that must know how the model came about which it trains: from the seed, "
        "or by a sum that they were in; 0 leaves models to the server",
    )
    steps: int = _setting(20_000, "most steps of training for one answer")
    seconds: float = _setting(900.0, "longest computation for one answer, estimated beforehand")
    megabytes: float = _setting(64.0, "largest question, and largest answer")
    methods: tuple[str, ...] = _setting((), "methods that it trains by; none named: all")
    targets: tuple[str, ...] = _setting(("energy",), "what models may predict; none named: all")
    window: int = _setting(60, "samples in a window; 0 leaves it to the server")
    stride: int = _setting(1, "samples between training windows; 0 leaves it to the server")
    evaluation_stride: int = _setting(
        10, "samples between windows that judge a model; 0 leaves it to the server"
    )
    split: tuple[float, ...] = _setting(
        (0.7, 0.1, 0.2), "shares of training, validation and test trips; none: the server's"
    )
    split_seed: int = _setting(0, "which trips these are; -1 leaves it to the server")
    fewest_windows: int = _setting(10, "windows of each kind without which it does not take part")
    fewest_trained: int = _setting(64, "fewest of its windows that a displacement Δ may be of")
    hiding: float = _setting(
        4.0,
        "noise on a reply Δ without a private method, in lengths of Δ; batches and weight are then "
        "by chance of its own, too; 0: none, and models are those of a simulation",
    )
    hills: bool = _setting(True, "whether it helps to learn hills")
    hills_vehicles: int = _setting(3, "fewest vehicles that must drive a place to publish it")
    smallest_cell: float = _setting(
        80.0,
        "fewest metres between the nodes that hills and driving are counted at, on one such grid a "
        "day; 0 leaves it to the server",
    )
    routes: bool = _setting(True, "whether it helps to learn how the fleet drives, for routes")
    noise: float = _setting(0.0, "least noise multiplier of a private method; 0: none needed")
    lifetime_epsilon: float = _setting(
        inf, "most that its lifetime ε against the server may be, at δ = 1e-5; inf: no bound"
    )
    unfollowed_a_day: int = _setting(
        20, "models a day that it judges, though too few vehicles know how they came about"
    )
    answers: int = _setting(1, "answers to the same round, and about the same model")
    answers_a_day: int = _setting(500, "answers made from its data, from midnight to midnight UTC")
    set_changes_a_day: int = _setting(
        8, "how often the vehicles of sums that judge models or learn hills may change in a day"
    )
    most_windows: int = _setting(200_000, "most that its windows may weigh in a mean")
    largest_step: float = _setting(
        10.0, "longest displacement ‖Δ‖ that it sends; a longer one is shortened"
    )
    servers: tuple[str, ...] = _setting(
        (), "SHA-256 fingerprints of the server certificates that it talks to; none: its ca.pem's"
    )

    def __post_init__(self) -> None:
        for name in ("steps", "answers", "answers_a_day", "most_windows", "fewest_windows",
                     "fewest_trained"):  # fmt: skip
            check(self, name, getattr(self, name) >= 1, "at least 1")
        for name in ("window", "stride", "evaluation_stride", "set_changes_a_day", "noise",
                     "hiding", "followed", "unfollowed_a_day", "smallest_cell"):  # fmt: skip
            check(self, name, 0 <= getattr(self, name) < inf, "at least 0")
        for name in ("smallest_sum", "hills_vehicles"):
            check(self, name, getattr(self, name) >= 2, "at least 2: a sum of one hides nothing")
        for name in ("seconds", "megabytes", "largest_step", "lifetime_epsilon"):
            check(self, name, getattr(self, name) > 0, "above 0")
        check(self, "split", len(self.split) in (0, 3), "three shares, or none")
        hexadecimal = all(len(s) == 64 and set(s) <= set("0123456789abcdef") for s in self.servers)
        check(self, "servers", hexadecimal, "fingerprints of 64 hexadecimal digits in lower case")


OPEN: Final = Policy(
    masks=False, smallest_sum=2, signed_sums=False, followed=0, window=0, stride=0,
    evaluation_stride=0, split=(), split_seed=-1, targets=(), fewest_windows=1, fewest_trained=1,
    hiding=0.0, hills_vehicles=2, smallest_cell=0.0,
    answers=1_000_000, answers_a_day=1_000_000, set_changes_a_day=1_000_000, largest_step=1e9,
)  # fmt: skip
"""For trials on data that is nobody's: whatever a server asks for in earnest."""


def to_text(policy: Policy) -> str:
    """A policy as TOML, with what every line means."""
    table, lines = to_table(policy), ["# What this vehicle answers, whoever asks.", ""]
    for one in fields(policy):
        lines += [f"# {one.metadata['meaning']}", tomli_w.dumps({one.name: table[one.name]})]
    return "\n".join(lines)


def from_text(text: str, where: str = POLICY) -> Policy:
    """The policy written in `text`."""
    try:
        return from_table(Policy, tomllib.loads(text), where)
    except tomllib.TOMLDecodeError as error:
        raise SettingError(f"{where} is not valid TOML: {error}.") from error


def differences(policy: Policy) -> list[str]:
    """What a policy allows otherwise than the defaults, a line each.

    >>> differences(Policy(steps=5000))
    ['steps = 5000 (default 20000): most steps of training for one answer']
    """
    return [
        f"{one.name} = {getattr(policy, one.name)} (default {one.default}): "
        f"{one.metadata['meaning']}"
        for one in fields(policy)
        if getattr(policy, one.name) != one.default
    ]


# ------------------------------------------------------------------------------------ signatures


def create_owner(folder: Path) -> None:
    """A key pair that policies are signed with: owner.key, which stays there, and owner.pub."""
    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    write_secret(folder / "owner.key", private)
    write_bytes(folder / OWNER, public)


def install(policy: Policy, board: Path, owner: Path) -> None:
    """Put a policy, signed with `owner`/owner.key, into the folder `board` of a vehicle."""
    write_text(board / POLICY, to_text(policy))
    sign(board, owner)


def sign(board: Path, owner: Path) -> None:
    """Sign the policy in `board` as it stands, and put the owner's public key beside it."""
    try:
        key = load_pem_private_key((owner / "owner.key").read_bytes(), password=None)
    except (OSError, ValueError, TypeError) as error:
        raise DataError(f"{owner / 'owner.key'} cannot be read: {error}.") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise DataError(f"{owner / 'owner.key'} is no Ed25519 key.")
    write_bytes(board / SIGNATURE, key.sign(CONTEXT + (board / POLICY).read_bytes()))
    write_bytes(board / OWNER, (owner / OWNER).read_bytes())


def on_board(board: Path | None) -> Policy:
    """The policy in the folder `board`; the defaults where there was never one.

    DataError if one is there that the owner did not sign as it stands, or if the owner's key or a
    signature is there without it: whoever can change the file, or take it away, must not thereby
    change what leaves the vehicle. (Who can take all three away brings the vehicle to the defaults,
    and who can put in a key of his own, to whatever he signs: keep the folder read-only.)
    """
    if board is None:
        return Policy()
    if not (board / POLICY).exists():
        left = [name for name in (OWNER, SIGNATURE) if (board / name).exists()]
        if left:
            raise DataError(
                f"{board} has {left[0]} and no {POLICY}: the owner's policy is gone. Put it back, "
                "or write a new one with 'fedwatt deploy policy write'."
            )
        return Policy()
    text = (board / POLICY).read_bytes()
    try:
        key = load_pem_public_key((board / OWNER).read_bytes())
        if not isinstance(key, Ed25519PublicKey):
            raise ValueError("no Ed25519 key")
        key.verify((board / SIGNATURE).read_bytes(), CONTEXT + text)
    except InvalidSignature as error:
        raise DataError(
            f"{board / POLICY} is not what the owner signed. 'fedwatt deploy policy sign' signs it."
        ) from error
    except (OSError, ValueError) as error:
        raise DataError(
            f"{board / POLICY} has no signature that can be checked ({error}). 'fedwatt deploy "
            "policy sign' makes one."
        ) from error
    return from_text(text.decode(), str(board / POLICY))
