"""Requests and replies over a real SuperLink, with the fast path and without."""

import os

from tests.deploy.transport.conftest import Server, vehicles

NAMES = ["car-1", "car-2", "car-3"]


def test_rounds(server: Server) -> None:
    def handle(name: str, body: bytes) -> bytes:
        number, _, remainder = body.partition(b":")
        return f"{name} round {number.decode()} ".encode() + remainder

    with vehicles(server, NAMES, handle):
        answer = server.run(vehicles=3, rounds=3, size=130_000, largest=200_000)
    fast = os.environ["FEDWATT_FAST_PATH"] == "1"
    assert answer["channel"] == ("FastChannel" if fast else "PublicChannel")
    for number, round in enumerate(answer["rounds"]):
        expected = {name: f"{name} round {number} " for name in NAMES}
        assert {n: text.rstrip("\0") for n, (_, text, _) in round["replies"].items()} == expected
        assert all(length == 130_000 + 14 for length, _, _ in round["replies"].values())
    print([round["seconds"] for round in answer["rounds"]])
