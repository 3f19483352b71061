"""Baselines to what is not part of fedwatt."""

import sys
from pathlib import Path

import pytest

from fedwatt import plugins
from fedwatt.errors import SettingError
from fedwatt.plugins import named_in, reference_to, resolve


def number(reference: str, kind: str = "model") -> plugins.Plugin:
    return resolve(reference, kind, "a whole number", lambda value: isinstance(value, int))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text(
        '"""Own things.\n\nMore."""\nfrom beside import two\none = 1\n'
    )
    (tmp_path / "beside.py").write_text("two = 2\n")
    yield tmp_path
    sys.modules.pop("beside", None)


@pytest.fixture
def package(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package that declares the model "seven", as if it were installed."""
    (folder / "site" / "sevens-1.2.dist-info").mkdir(parents=True)
    subject = folder / "site" / "sevens-1.2.dist-info"
    (subject / "METADATA").write_text("Metadata-Version: 2.1\nName: sevens\nVersion: 1.2\n")
    (subject / "entry_points.txt").write_text("[fedwatt.models]\nseven = sevens:seven\n")
    (folder / "site" / "sevens.py").write_text('"""Sevens."""\nseven = 7\n')
    monkeypatch.syspath_prepend(folder / "site")
    yield folder
    sys.modules.pop("sevens", None)


def test_file(folder: Path) -> None:
    plugin_number = number("./own.py:one")
    assert (plugin_number.value, plugin_number.origin, plugin_number.summary) == (
        1,
        "./own.py",
        "Own things.",
    )
    assert number(f"{folder}/own.py:two").value == 2  # what it imports from beside it, too
    assert str(folder) not in sys.path


def test_a_changed_file_is_read_anew(folder: Path) -> None:
    before = number("own.py:one")
    (folder / "own.py").write_text("one = 11\n")
    after = number("own.py:one")
    assert (before.value, after.value) == (1, 11)
    assert before.source != after.source == number("own.py:one").source


def test_module_from_the_working_folder(folder: Path) -> None:
    assert number("beside:two").value == 2
    assert number("fedwatt.windows.features:MEMORY_S").value == 62


def test_entry_point(package: Path) -> None:
    assert plugins.refers("seven", "model")
    assert not plugins.refers("seven", "method")
    plugin_number = number("seven")
    assert (plugin_number.value, plugin_number.origin, plugin_number.summary) == (
        7,
        "sevens 1.2",
        "Sevens.",
    )


def test_a_file_that_came_with_a_task(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    number("./own.py:one")
    files = {"elsewhere/own.py": plugins.loaded_files()["./own.py"]}
    monkeypatch.setattr(plugins, "_carried", {})
    plugins.carry(files)
    assert number("elsewhere/own.py:one").value == 1


def test_reference_to(folder: Path) -> None:
    (folder / "kinds.py").write_text("class Net:\n    class Small:\n        pass\n")
    (small,) = [
        resolve("./kinds.py:Net.Small", "model", "a class", lambda v: isinstance(v, type)).value
    ]
    assert reference_to(small) == "./kinds.py:Net.Small"
    assert reference_to(Path) in ("pathlib:Path", "pathlib._local:Path")


def test_whole_and_short(folder: Path) -> None:
    (folder / "a+b").mkdir()
    (folder / "a+b" / "own.py").write_text("one = 1\n")
    assert plugins.is_single("a+b/own.py:one")
    assert plugins.short("a+b/own.py:one") == "one"
    assert not plugins.is_single("fractional+./own.py:one")


@pytest.mark.parametrize(
    ("reference", "sentence"),
    [
        ("./absent.py:one", r"There is no file './absent.py': a relative path starts from /.+\."),
        ("absent.deep:one", r"There is no module 'absent' for 'absent.deep:one'\. Install it, or"),
        (
            "./own.py:ones",
            r"defines no 'ones', which '\./own\.py:ones' asks for\. Did you mean 'one'\?",
        ),
        ("./own.py:Path.absent", "defines no 'Path.absent'"),
        (
            "beside:__doc__",
            r"'beside:__doc__' is a NoneType; a model is a whole number\.",
        ),
        ("./own.py:", "is not a reference to a model: write './file.py:name'"),
        (":one", "is not a reference to a model"),
        ("eight", "Unknown model 'eight'"),
    ],
)
def test_one_clear_sentence(folder: Path, reference: str, sentence: str) -> None:
    with pytest.raises(SettingError, match=sentence):
        number(reference)


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        ("one = (\n", r"\./broken\.py, line 1 cannot be loaded: SyntaxError: .*never closed\."),
        ("import absent_thing\n", r"cannot be loaded: ModuleNotFoundError: .*absent_thing"),
        ("one = 1 / 0\n", r"\./broken\.py cannot be loaded: ZeroDivisionError: division by zero\."),
    ],
)
def test_code_that_does_not_load(folder: Path, code: str, sentence: str) -> None:
    (folder / "broken.py").write_text(code)
    with pytest.raises(SettingError, match=sentence):
        number("./broken.py:one")
    assert not [name for name in sys.modules if "broken" in name and "fedwatt_plugin" in name]


MARK = "import pathlib; pathlib.Path('ran').touch()\none = 1\n"


@pytest.fixture
def nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget what earlier tests trusted."""
    monkeypatch.setattr(plugins, "_trusted", set())


@pytest.mark.usefixtures("nobody")
def test_a_file_names_entry_points_only(package: Path) -> None:
    (package / "own.py").write_text(MARK)
    with named_in("theirs.toml"):
        assert number("seven").value == 7
        for reference in ("./own.py:one", "sevens:seven", "fedwatt.cli:main", "os.path:sep"):
            with pytest.raises(SettingError, match=r"^theirs\.toml names code: the model '"):
                number(reference)
    assert not (package / "ran").exists()
    with pytest.raises(SettingError, match=f"would run the file {package}/own.py.* --trust ./own"):
        plugins.refuse_untrusted("./own.py:one", "model", "theirs.toml")
    with pytest.raises(SettingError, match=r"would import the module 'fedwatt\.cli' and run"):
        plugins.refuse_untrusted("fedwatt.cli:main", "model", "theirs.toml")


@pytest.mark.usefixtures("nobody")
def test_trusted_by_its_place(folder: Path) -> None:
    (folder / "deep").mkdir()
    (folder / "deep" / "own.py").write_text(MARK)
    plugins.trust("own.py")
    with named_in("theirs.toml"):
        assert number("./own.py:one").value == 1  # the same file by another path
        with pytest.raises(SettingError, match="names code"):
            number("deep/own.py:one")
        plugins.trust("fractional+deep/own.py:one@adam")
        assert number(f"{folder}/deep/own.py:one").value == 1


@pytest.mark.usefixtures("nobody")
def test_what_the_user_names_is_trusted_from_then_on(folder: Path) -> None:
    assert number("beside:two").value == 2
    with named_in("theirs.toml"):
        assert number("beside:two").value == 2
        with named_in(None):  # the program's own text
            assert number("./own.py:one").value == 1
