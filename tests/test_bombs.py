"""Small files that unpack to gigabytes or nest without end: one sentence, and little memory."""

import json
import subprocess
import sys
import zlib
from base64 import b64encode
from pathlib import Path

import onnx
import pytest

from fedwatt.edge.export import export
from fedwatt.edge.reading import read_route
from fedwatt.errors import DataError
from fedwatt.files import inflate, parse_json, parse_toml
from tests.edge.toys import a_vehicle, trained

GIGABYTE = 1 << 30
SLACK = 700 << 20
"""Bytes of memory that a command may take beside what it reads: its libraries, mostly."""
PROGRAM = f"""
import resource
resource.setrlimit(resource.RLIMIT_AS, ({6 * GIGABYTE}, {6 * GIGABYTE}))
import atexit, pathlib, re
status = pathlib.Path("/proc/self/status")
def note_peak():
    pathlib.Path("peak").write_text(re.search(r"VmHWM:\\s+(\\d+)", status.read_text())[1])
atexit.register(note_peak)
from fedwatt.cli import main
main()
"""


def bomb(size: int, head: bytes = b"{", wbits: int = 15) -> bytes:
    """A compressed stream of `head` and then `size` spaces; its checksum does not matter."""
    packer = zlib.compressobj(9, wbits=wbits)
    head = packer.compress(head) + packer.flush(zlib.Z_FULL_FLUSH)
    block = packer.compress(b" " * (64 << 20)) + packer.flush(zlib.Z_FULL_FLUSH)
    return head + block * (size // (64 << 20)) + packer.flush()


def refusal(*words: object, cwd: Path) -> str:
    """The sentence with which a command ends that must neither crash nor take much memory."""
    command = [sys.executable, "-c", PROGRAM, *map(str, words)]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=120)
    text = " ".join(done.stderr.split())
    assert done.returncode == 2, text
    assert "Traceback" not in text
    peak_kb = int((cwd / "peak").read_text())
    assert peak_kb << 10 < SLACK, f"{peak_kb >> 10} MB"
    return text


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A model file of a vehicle."""
    export(trained(), tmp_path / "model.onnx", vehicle=a_vehicle())
    return tmp_path / "model.onnx"


def with_note(model: Path, key: str, text: str, **card: object) -> None:
    """Put a text beside the card of a model file, and entries into the card."""
    graph = onnx.load(model)
    graph.metadata_props.add(key=key, value=text)
    for entry in graph.metadata_props:
        if entry.key == "fedwatt":
            entry.value = json.dumps(json.loads(entry.value) | card)
    onnx.save(graph, model)


def test_routes_in_a_model_file(model: Path, tmp_path: Path) -> None:
    with_note(model, "fedwatt.routes", b64encode(bomb(2 * GIGABYTE)).decode())
    assert model.stat().st_size < 4_000_000
    (tmp_path / "way.csv").write_text("lat,lon\n42.0,-83.0\n42.1,-83.0\n")
    message = refusal("route", "way.csv", "--model", model, cwd=tmp_path)
    assert "holds no routes that can be read: it unpacks to more than 134,217,728 bytes" in message


@pytest.mark.parametrize(
    ("nodes", "sentence"),
    [
        (1000, "it unpacks to more than 16,000 bytes"),
        (10**9, "1,000,000,000 nodes are not between"),
    ],
)
def test_elevation_in_a_model_file(model: Path, tmp_path: Path, nodes: int, sentence: str) -> None:
    elevation = {"source": "field", "nodes": nodes, "cell_m": 80.0, "hash": ""}
    with_note(model, "fedwatt.field", b64encode(bomb(2 * GIGABYTE)).decode(), elevation=elevation)
    assert sentence in refusal("predict", model, "trip.csv", cwd=tmp_path)


def test_gzip_of_a_table(tmp_path: Path) -> None:
    packed = bomb(2 * GIGABYTE, b"DayNum,VehId", wbits=-15)
    (tmp_path / "week.csv.gz").write_bytes(b"\x1f\x8b\x08\0\0\0\0\0\0\xff" + packed)
    message = refusal("data", "import", "ved", "week.csv.gz", "--out", "fleet", cwd=tmp_path)
    assert "week.csv.gz is truncated or damaged (OSError)" in message


def test_archive(tmp_path: Path) -> None:
    py7zr = pytest.importorskip("py7zr")
    fast = [{"id": py7zr.FILTER_LZMA2, "preset": 1}]
    with py7zr.SevenZipFile(tmp_path / "week.7z", "w", filters=fast) as archive:
        archive.writestr(bytes(256 << 20), "week.csv")
    assert (tmp_path / "week.7z").stat().st_size < 100_000
    message = refusal("data", "import", "ved", "week.7z", "--out", "fleet", cwd=tmp_path)
    assert "would unpack to 0.3 GB, more than 100 times its size" in message


def test_a_table_of_one_endless_line(tmp_path: Path) -> None:
    with (tmp_path / "day.csv").open("wb") as file:
        file.truncate(1 << 30)  # sparse: it has no blocks on the disk
    (tmp_path / "map.toml").write_text(
        '[time]\ncolumn = "t"\nunit = "s"\n[vehicle]\ncolumn = "car"\n[trip]\ncolumn = "drive"\n'
        '[channels.speed_mps]\ncolumn = "v"\nunit = "km/h"\n'
        '[channels.power_w]\ncolumn = "p"\nunit = "W"\n'
    )
    message = refusal(
        "data", "import", "csv", "day.csv", "--map", "map.toml", "--out", "f", cwd=tmp_path
    )
    assert "day.csv: a line is longer than 16 MB, so it is no table" in message


DEEP = "[" * 100_000


@pytest.mark.parametrize(
    ("file", "text", "words", "sentence"),
    [
        ("run.toml", f"seeds = {DEEP}", "run run.toml", "is not valid TOML: it nests deeper"),
        ("m.toml", f"a = {DEEP}", "data import csv m.toml --map m.toml --out f", "nests deeper"),
        ("run.toml", f"{'a.' * 200}b = 1", "run run.toml", "it nests deeper than 100 levels"),
    ],
)
def test_deep_text(tmp_path: Path, file: str, text: str, words: str, sentence: str) -> None:
    (tmp_path / file).write_text(text)
    assert sentence in refusal(*words.split(), cwd=tmp_path)


@pytest.mark.parametrize("text", [DEEP, '{"type": "Feature", "geometry": ' * 20_000])
def test_a_deep_route(tmp_path: Path, text: str) -> None:
    (tmp_path / "way.geojson").write_text(text)
    with pytest.raises(DataError, match=r"cannot be read as GeoJSON: it nests deeper than 100"):
        read_route(tmp_path / "way.geojson")


def test_a_deep_card(model: Path, tmp_path: Path) -> None:
    graph = onnx.load(model)
    for entry in graph.metadata_props:
        entry.value = DEEP
    onnx.save(graph, model)
    assert "it nests deeper than 100 levels" in refusal("inspect", model, cwd=tmp_path)


def test_depth_to_the_level() -> None:
    assert parse_json("[" * 100 + "]" * 100)
    with pytest.raises(json.JSONDecodeError, match="nests deeper than 100"):
        parse_json("[" * 101 + "1" + "]" * 101)
    assert parse_toml("a = " + "[" * 90 + "]" * 90)


def test_inflate_to_the_byte() -> None:
    assert inflate(zlib.compress(b"12345"), 5) == b"12345"
    assert inflate(zlib.compress(b""), 0) == b""
    with pytest.raises(ValueError, match="more than 4 bytes"):
        inflate(zlib.compress(b"12345"), 4)
    with pytest.raises(ValueError, match="cut off"):
        inflate(zlib.compress(b"12345")[:-1], 5)
