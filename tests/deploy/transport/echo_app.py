"""A ServerApp that sends requests through the channel and writes down what came back."""

import json
import time
from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedwatt.deploy.transport.channel import channel

app = ServerApp()
SECONDS = 200.0
"""For which it waits; on a busy machine everything takes longer."""


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Send rounds of requests to all nodes and write the replies as JSON."""
    settings = context.run_config
    vehicles, rounds, size = (int(str(settings[n])) for n in ("vehicles", "rounds", "size"))
    largest = int(str(settings["largest"]))
    link = channel(grid)
    deadline = time.monotonic() + SECONDS
    while len(link.nodes()) < vehicles and time.monotonic() < deadline:
        time.sleep(0.1)
    names = link.nodes()
    result = []
    for round in range(rounds):
        began = time.monotonic()
        body = b"%d:" % round + bytes(size)
        waiting = link.send(dict.fromkeys(names, body), seconds=SECONDS, largest_reply=largest)
        nodes = dict(waiting)
        replies = {}
        while len(replies) < len(waiting) and time.monotonic() < began + SECONDS:
            for number, received in link.receive([n for n in waiting if n not in replies]).items():
                replies[number] = received
            time.sleep(0.05)
        result.append(
            {
                "seconds": time.monotonic() - began,
                "replies": {
                    names[nodes[n]]: (
                        [0, "", r] if isinstance(r, str) else [len(r), r[:40].decode("latin1"), ""]
                    )
                    for n, r in replies.items()
                },
            }
        )
    out = {"channel": type(link).__name__, "rounds": result}
    Path(str(settings["out"])).write_text(json.dumps(out))
