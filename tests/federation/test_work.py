"""Columns that a user's rule records reach the table of clients and its file."""

from dataclasses import dataclass
from math import isnan
from pathlib import Path
from typing import ClassVar

import pytest
import torch
from pytest import approx
from torch import Tensor

from fedwatt.errors import SettingError
from fedwatt.federation import Availability, Federation, Training
from fedwatt.federation.local_round import lengths
from fedwatt.federation.work import recorded_columns
from fedwatt.methods import Method
from fedwatt.methods.rule import LocalRule, Rows, Start
from fedwatt.methods.server import Average, Replies
from fedwatt.models import Model
from fedwatt.runs.tables import read_table, write_table
from fedwatt.tables import Column
from tests.federation.toys import random_fleet
from tests.report.conftest import make_run

SIZES = (70, 33, 128, 5)
"""Their mean is 59."""


@dataclass(frozen=True, kw_only=True)
class Weighed(LocalRule):
    """Changes nothing, and records how large a vehicle is; `scratch` is its own affair."""

    records: ClassVar[tuple[Column, ...]] = (
        Column("size", float, "ω_k"),
        Column("planned", int, "H_k"),
        Column("large", bool, "whether it has more windows than the mean"),
    )

    def begin(self, client_state: Rows, start: Start) -> tuple[Rows, Rows]:
        size = start.relative_size
        return client_state, {
            "size": size,
            "planned": start.steps,
            "large": size > 1,
            "scratch": size,
        }


def trained(method: Method, availability: Availability | None = None) -> list[dict]:
    federation = Federation(
        random_fleet(SIZES),
        training=Training(rounds=2, participation=1.0, batch=32, steps=2),
        availability=availability,
        device="cpu",
    )
    return federation.train(method).history.clients


def test_it_reaches_the_table() -> None:
    rows = trained(Method("weighed", (Weighed(),)))
    assert len(rows) == 8
    for row in rows:
        assert row["size"] == approx(row["windows"] / 59)
        assert row["planned"] == 2 and row["large"] is (row["windows"] > 59)
        assert "scratch" not in row


def test_a_lost_reply_leaves_it_unknown() -> None:
    rows = trained(Method("weighed", (Weighed(),)), Availability(reply_loss=0.5))
    lost = [row for row in rows if not row["replied"]]
    assert 0 < len(lost) < len(rows)
    assert all(isnan(row["size"]) and row["planned"] == 0 and not row["large"] for row in lost)


def test_it_reaches_the_file_and_is_unknown_for_other_methods(tmp_path: Path) -> None:
    rows = [
        {"method": method.name, **row}
        for method in (Method("fedavg"), Method("weighed", (Weighed(),)))
        for row in trained(method)
    ]
    folder = make_run(tmp_path / "own", methods=("fedavg",))
    write_table(folder, "clients", rows)
    table = read_table(folder, "clients")
    assert table.column_names[-4:] == ["probed", "size", "planned", "large"]
    assert [str(field.type) for field in table.schema][-3:] == ["double", "int64", "bool"]
    plain = table.to_pylist()[:8]
    weighed = table.to_pylist()[8:]
    assert all(isnan(row["size"]) and not row["large"] for row in plain)
    assert [row["size"] for row in weighed] == approx([n / 59 for n in SIZES * 2])
    # Rows that were read are written as they were: a run goes on after a checkpoint.
    write_table(tmp_path, "clients", table.to_pylist())
    written = [(run_folder / "clients.parquet").read_bytes() for run_folder in (folder, tmp_path)]
    assert written[0] == written[1]


def test_what_is_recorded_is_a_number_for_each_vehicle() -> None:
    with pytest.raises(SettingError, match=r"Weighed records 'size', which has the shape \[2, 3\]"):
        recorded_columns([Weighed()], [{"size": torch.zeros(2, 3)}])


def test_what_is_declared_and_not_returned_is_an_error() -> None:
    with pytest.raises(SettingError, match="Weighed records 'planned', which its `begin` does not"):
        recorded_columns([Weighed()], [{"size": torch.zeros(2), "large": torch.zeros(2)}])


@dataclass(frozen=True, kw_only=True)
class Telling(LocalRule):
    """Hands up how many steps a vehicle was to take, in `finish` or by its plan, or forgets to."""

    told_by: str = "finish"

    def uploads(self, model: Model) -> Rows:
        return {"asked_for": torch.tensor(0)}

    def begin(self, client_state: Rows, start: Start) -> tuple[Rows, Rows]:
        return client_state, {"asked_for": start.steps} if self.told_by == "plan" else {}

    def finish(
        self, client_state: Rows, plan: Rows, start: Start, deltas: Tensor
    ) -> tuple[Rows, Rows]:
        client_state, up = super().finish(client_state, plan, start, deltas)
        return client_state, up | ({"asked_for": start.steps} if self.told_by == "finish" else {})


@dataclass(frozen=True, kw_only=True)
class Listening(Average):
    """Averages, and takes in what vehicles tell: two steps each."""

    def update(self, state: Rows, weights: Tensor, replies: Replies) -> tuple[Rows, Tensor]:
        assert replies.uploads["asked_for"].tolist() == [2, 2, 2, 2]
        return super().update(state, weights, replies)


@pytest.mark.parametrize("told_by", ["finish", "plan"])
def test_what_is_handed_up_is_in_the_plan_or_added_by_finish(told_by: str) -> None:
    assert len(trained(Method("telling", (Telling(told_by=told_by),), Listening()))) == 8


def test_what_is_to_be_handed_up_and_is_not_is_an_error() -> None:
    with pytest.raises(SettingError, match="Telling names 'asked_for' in `uploads` and does not"):
        trained(Method("telling", (Telling(told_by="nobody"),)))


@dataclass(frozen=True, kw_only=True)
class Wrong(LocalRule):
    """Plans `planned`, and remembers `kept` by what `begin` and `finish` return."""

    planned: object = None
    begins: tuple[str, ...] = ("kept",)
    finishes: tuple[str, ...] = ("kept",)

    def client_state(self, model: Model) -> Rows:
        return {"kept": torch.tensor(0.0)}

    def begin(self, client_state: Rows, start: Start) -> tuple[Rows, Rows]:
        plan = {} if self.planned is None else {"planned": self.planned}
        return {name: client_state["kept"] for name in self.begins}, plan

    def finish(
        self, client_state: Rows, plan: Rows, start: Start, deltas: Tensor
    ) -> tuple[Rows, Rows]:
        return {name: client_state["kept"] for name in self.finishes}, {}


@pytest.mark.parametrize(
    ("rule", "sentence"),
    [
        (Wrong(planned=torch.tensor(0.1)), r"Wrong plans 'planned', which is of shape \[\]\. Let"),
        (Wrong(planned=torch.ones(3, 4)), r"which is of shape \[3, 4\]\. Let `begin` .* P = 4"),
        (Wrong(planned=0.1), r"Wrong plans 'planned', which is 0.1\. Let `begin` return a tensor"),
        (
            Wrong(begins=()),
            r"Wrong names 'kept' in `client_state` and does not return it from `begin`",
        ),
        (Wrong(begins=("kept", "new")), r"returns 'new' from `begin` and does not name"),
        (Wrong(finishes=()), r"names 'kept' in `client_state` .* return it from `finish`"),
        (Wrong(finishes=("kept", "new")), r"Wrong returns 'new' from `finish` and does"),
    ],
)
def test_what_a_rule_returns_in_a_wrong_form_is_an_error(rule: LocalRule, sentence: str) -> None:
    with pytest.raises(SettingError, match=sentence):
        trained(Method("wrong", (rule,)))


def test_a_rule_that_returns_what_it_declares_trains() -> None:
    assert len(trained(Method("right", (Wrong(planned=torch.ones(4)),)))) == 8


@pytest.mark.parametrize("name", ["steps", "drift", "roughness"])
def test_a_name_that_is_taken_is_refused(name: str) -> None:
    class Clumsy(LocalRule):
        records: ClassVar[tuple[Column, ...]] = (Column(name, float, "something else"),)

    with pytest.raises(SettingError, match=f"already has '{name}'"):
        Method("clumsy", (Clumsy(),))


@pytest.mark.parametrize("count", [0, 1, 15, 16, 17, 40])
def test_lengths_a_few_rows_at_a_time_have_the_bits_of_all_at_once(count: int) -> None:
    vectors = torch.randn((count, 4001), generator=torch.Generator().manual_seed(count))
    complete = torch.linalg.vector_norm(vectors, dim=-1, dtype=torch.float64)
    assert torch.equal(lengths(vectors), complete)
