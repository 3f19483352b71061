"""The longest message about hills that a vehicle may be asked for, within the memory it is given.

deploy/ has units that give a vehicle 1 GB.
"""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("flwr")
pytest.importorskip("cryptography")

LARGEST_ANSWER = """
from pathlib import Path

from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects

import fedwatt.deploy.node  # all that a vehicle's process has loaded
from fedwatt.deploy.messages import Content, to_records
from fedwatt.windows import DataSettings
from fedwatt.privacy.fixed_point import Layout
from fedwatt.privacy.secure import server
from fedwatt.privacy.secure.plain import to_plain
from fedwatt.privacy.secure.vehicle import advertise, mask_input, share_keys
from fedwatt.privacy.secure_settings import SecureSettings
from fedwatt.elevation.grid import Grid
from fedwatt.elevation.settings import TerrainSettings
from fedwatt.elevation.question import Question
from fedwatt.elevation.summands import MOST_WORDS
from fedwatt.elevation.field import empty_field
from fedwatt.elevation.survey import survey
from tests.elevation.toys import fleet

grid, settings = Grid(), TerrainSettings(area=(42.0, 42.24, -83.0, -82.676))
own = survey(fleet(1)[0], grid, 8, DataSettings(features="speed"))
question = Question(grid, settings, settings.service_area.nodes(grid), empty_field(grid))
layout = Layout(question.fields, vehicles=2)
assert 0.95 * MOST_WORDS < layout.length <= MOST_WORDS, layout.length

terms = SecureSettings(bits=64).terms(run="r", number=0, called=2, length=layout.length)
made = {name: advertise(terms, name) for name in "ab"}
keyed, _ = server.make_roster(terms, {name: advert for name, (_, advert) in made.items()})
shared = {name: share_keys(made[name][0], keyed.roster(name)) for name in "ab"}
_, inboxes, _ = server.route(keyed, {name: shares for name, (_, shares) in shared.items()})
_, masked = mask_input(shared["a"][0], inboxes["a"], layout.encode(question.answer(own)))
objects = get_all_nested_objects(to_records(Content(to_plain(masked))))
assert sum(len(one.deflate()) for one in objects.values()) > 8 * layout.length
# Not getrusage: its peak is at least that of the process that started this one.
print(int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]) / 1024)
"""


def test_the_longest_message_fits_into_a_vehicles_memory() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LARGEST_ANSWER],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    # The rest is for its trips.
    assert float(done.stdout) < 900
