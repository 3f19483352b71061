"""The command of Flower's own node: what it says is what the app on that node takes up."""

from pathlib import Path

import pytest

pytest.importorskip("flwr")

from flwr.app import Context, Message, RecordDict
from flwr.common.config import parse_config_args

from fedwatt.deploy import client_app
from fedwatt.deploy.connection import Connection
from fedwatt.deploy.messages import MESSAGE_TYPES, Content, from_records, to_records
from fedwatt.deploy.trial import stock_command
from fedwatt.elevation.field import empty_field
from fedwatt.elevation.grid import Grid
from fedwatt.elevation.store import write_field
from fedwatt.telemetry.store import vehicle_folders
from tests.deploy.fleets import config_text, make_fleet
from tests.deploy.loopback import open_policy


def enrolled(node_config: str, text: str) -> Message:
    context = Context(
        run_id=1,
        node_id=1,
        node_config=parse_config_args([node_config]),
        state=RecordDict(),
        run_config={},
    )
    question = to_records(Content({"config": text}))
    return client_app._answer(Message(question, 1, MESSAGE_TYPES["enrol"]), context)


def test_flowers_own_node_has_the_field_too(tmp_path: Path) -> None:
    folder = vehicle_folders(make_fleet(tmp_path / "a fleet", 1))[0]
    field = tmp_path / "a field.parquet"
    write_field(field, empty_field(Grid()))
    text = config_text(folder.parent).replace("[model]", f'[terrain]\nsource = "{field}"\n[model]')
    text = text.replace("window = 10", 'window = 10\nfeatures = "base, terrain"')
    where = folder, tmp_path / "state", Connection("127.0.0.1:9092", None, None)
    command = stock_command(*where, field)
    board = f' policy="{open_policy(tmp_path / "board")}"'
    reply = enrolled(command[command.index("--node-config") + 1] + board, text)
    assert not reply.has_error()
    assert "ascent" in from_records(reply.content).values["features"]
    bare = stock_command(*where)
    assert enrolled(bare[bare.index("--node-config") + 1] + board, text).has_error()
