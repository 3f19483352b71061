"""Methods, models, targets, features and readers that are not part of fedwatt.

A reference names one of them, wherever a configuration or the command line takes a name:

    ./sam.py:sam          `sam` in a file; a relative path starts from the folder one works in
    mypackage.sam:sam     `sam` in a module that Python can import
    sam                   an entry point that an installed package declares, as in
                          [project.entry-points."fedwatt.methods"]
                          sam = "mypackage.sam:sam"

With the object comes a hash of the file that it is written in. A run keeps both, so that it can be
repeated and continued, and can say when the code is no longer what it was. Only that one file is
hashed, not what it imports.

Who may name code:

- the user, on the command line or in Python, may name anything;
- a file (configuration, run folder, model file, plan, message) may name what is built in and the
  entry points of installed packages. Any other code that it names is loaded only after the user
  has named that code, too: with `--trust ./sam.py`, or `trust("./sam.py")` in Python.

Everything that reads such a file does so inside `named_in`, or asks `refuse_untrusted`.
"""

import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache, reduce
from hashlib import sha256
from importlib import import_module, metadata
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from fedwatt.errors import SettingError, unknown

GROUPS: Mapping[str, str] = {
    kind: f"fedwatt.{kind}s" for kind in ("method", "model", "target", "reader", "feature")
}
"""What may be brought along, and the group of entry points that declares it."""

_PLUGIN_MODULES = "_fedwatt_plugin_"
_carried: dict[str, bytes] = {}
"""Files that came with a task from another machine, by the path that they have there."""
_loaded: dict[str, bytes] = {}
"""Files that objects were taken from in this process, by their path as it was written."""
_trusted: set[str] = set()
"""Files and modules that the user of this process has named, as `_identity` writes them."""
_document: ContextVar[str | None] = ContextVar("document", default=None)
"""The file whose text is being read; None while names are the user's words."""


@dataclass(frozen=True, eq=False)
class Plugin:
    """An object that a reference names."""

    reference: str
    value: Any
    origin: str
    """Where it comes from: a file, a module, or a package and its version."""
    source: str
    """Hash of the file that it is written in; empty where there is no file."""
    summary: str
    """First line of its own docstring if it is a class or function that has one, or of its file's.
    """


def refers(name: str, kind: str) -> bool:
    """Return whether `name` is a reference or the name of an entry point.

    >>> refers("./sam.py:sam", "method"), refers("fedavg", "method")
    (True, False)
    """
    return ":" in name or name in entry_points(kind)


def entry_points(kind: str) -> dict[str, metadata.EntryPoint]:
    """Return the entry points of a kind that installed packages declare, by name."""
    return _entry_points(GROUPS[kind], tuple(sys.path))


@cache
def _entry_points(group: str, path: tuple[str, ...]) -> dict[str, metadata.EntryPoint]:
    """Return the entry points of a group, cached while Python's path stays the same."""
    return {point.name: point for point in metadata.entry_points(group=group)}


def resolve(
    reference: str,
    kind: str,
    expected: str = "anything",
    fits: Callable[[Any], bool] = lambda value: True,
) -> Plugin:
    """Return the object that `reference` names; refuse one that does not fit what is `expected`."""
    points = entry_points(kind)
    if ":" in reference:
        target = reference
        origin = ""
    elif reference in points:
        target = points[reference].value
        package = points[reference].dist
        origin = target if package is None else f"{package.name} {package.version}"
    else:
        raise SettingError(unknown(kind, reference, points))
    home, _, attribute = target.rpartition(":")
    if not home or not attribute:
        raise SettingError(
            f"'{reference}' is not a reference to a {kind}: write './file.py:name' or "
            "'package.module:name'."
        )
    document = _document.get()
    if document is not None:
        refuse_untrusted(reference, kind, document)
    elif ":" in reference:
        trust(reference)
    module, source = _module(home, reference)
    try:
        value = reduce(getattr, attribute.split("."), module)
    except AttributeError as error:
        if home == "__main__":
            raise SettingError(
                f"'{attribute}' was written in a script or session that is over. Move it to "
                f"another file and name that, as in './own.py:{attribute}'."
            ) from error
        near = get_close_matches(attribute, dir(module), n=1)
        guess = f" Did you mean '{near[0]}'?" if near else ""
        raise SettingError(
            f"{home} defines no '{attribute}', which '{reference}' asks for.{guess}"
        ) from error
    if not fits(value):
        raise SettingError(f"'{reference}' is {_kind(value)}; a {kind} is {expected}.")
    docstring = getattr(value, "__doc__", None) if hasattr(value, "__qualname__") else None
    summary = (docstring or module.__doc__ or "").strip().partition("\n")[0]
    return Plugin(reference, value, origin or home, source, summary)


def reference_to(value: Any) -> str:
    """Return a reference to a class or function, by which `resolve` finds it again.

    What stands in a script or a session has "__main__" for a module: it is found while that lasts.
    """
    module = sys.modules[getattr(value, "__module__", None) or type(value).__module__]
    home = getattr(module, "__fedwatt_reference__", module.__name__)
    return f"{home}:{value.__qualname__}"


def short(reference: str) -> str:
    """Return the short name of a reference.

    >>> short("./sam.py:sam"), short("fractional+./sam.py:sam@adam"), short("fedavg")
    ('sam', 'fractional+sam@adam', 'fedavg')
    """
    if is_single(reference):
        return reference.rpartition(":")[2]
    for separator in "@+":
        if separator in reference:
            return separator.join(short(part) for part in reference.split(separator))
    return reference


def is_single(reference: str) -> bool:
    """Return whether a reference is one object, not several that are joined by + and @."""
    home, colon, attribute = reference.rpartition(":")
    joined = {"+", "@"}
    return bool(colon and not joined & set(attribute)) and (
        not joined & set(home) or _readable(home)
    )


def parts(name: str) -> list[str]:
    """Split the name of a composed method at + and @.

    >>> parts("fractional+./sam.py:sam@adam")
    ['fractional', './sam.py:sam', 'adam']
    """
    return [name] if is_single(name) else re.split("[+@]", name)


def loaded_files() -> dict[str, bytes]:
    """Return the files that objects were taken from, for a machine that does not have them."""
    return dict(_loaded)


def carry(files: Mapping[str, bytes]) -> None:
    """Take objects from these files, whether they are here or not."""
    _carried.update(files)


@contextmanager
def named_in(document: str | None) -> Iterator[None]:
    """Resolve references in this block as those of a file, which may name trusted code only.

    None: the text was written by this program for its user, as in a task on another machine.
    """
    before = _document.set(document)
    try:
        yield
    finally:
        _document.reset(before)


def trust(*names: str) -> None:
    """Let files name this code: files and modules, or references, also composed ones.

    >>> trust("./sam.py", "mypackage.sam", "fractional+./pull.py:pull")
    """
    for name in names:
        if ":" not in name:
            _trusted.add(_identity(name))
            continue
        references = [part for piece in name.split(",") for part in parts(piece.strip())]
        homes = (reference.rpartition(":")[0] for reference in references if ":" in reference)
        _trusted.update(map(_identity, homes))


def refuse_untrusted(reference: str, kind: str, document: str) -> None:
    """Raise SettingError if `reference` in `document` would run code that the user has not named.

    Names of installed entry points pass: whoever installed the package has decided to run it.
    """
    home, colon, _ = reference.rpartition(":")
    if not colon or _identity(home) in _trusted:
        return
    if home.endswith(".py"):
        effect = f"run the file {Path(home).expanduser().absolute()}"
    else:
        effect = f"import the module '{home}' and run what it holds"
    raise SettingError(
        f"{document} names code: the {kind} '{reference}' would {effect}. fedwatt does not run "
        f"code because a file says so. If you have read that code and trust it, add --trust {home} "
        f"(in Python: fedwatt.plugins.trust({home!r})); an installed package is trusted by the "
        "names of its entry points (docs/extending.md)."
    )


def _identity(home: str) -> str:
    """Return the absolute path of a file, or the name of a module."""
    return str(Path(home).expanduser().resolve()) if home.endswith(".py") else home


def _module(home: str, reference: str) -> tuple[ModuleType, str]:
    """Return the module of a reference, and the hash of its source."""
    try:
        if home.endswith(".py"):
            return _from_file(home)
        with _on_path(Path.cwd()):
            module = import_module(home)
    except SettingError:
        raise
    except ModuleNotFoundError as error:
        if error.name is not None and home.startswith(error.name):
            raise SettingError(
                f"There is no module '{error.name}' for '{reference}'. Install it, or give a file, "
                "as in './sam.py:sam'."
            ) from error
        raise SettingError(_broken(home, error)) from error
    except Exception as error:  # whatever the code of somebody else raises
        raise SettingError(_broken(home, error)) from error
    file = getattr(module, "__file__", None)
    hashed = getattr(module, "__fedwatt_source__", None)
    if hashed is None and file is not None and Path(file).is_file():
        # Kept with the module: the file may change while what was read of it goes on.
        hashed = _hash(Path(file).read_bytes())
        module.__fedwatt_source__ = hashed  # type: ignore[attr-defined]
    return module, hashed or ""


def _from_file(home: str) -> tuple[ModuleType, str]:
    """Return the module in a file, loaded anew when the file has changed."""
    path = Path(home).expanduser()
    try:
        code = _carried[home] if home in _carried else path.read_bytes()
    except FileNotFoundError as error:
        raise SettingError(
            f"There is no file '{home}': a relative path starts from {Path.cwd()}."
        ) from error
    except OSError as error:
        raise SettingError(f"Cannot read '{home}': {error.strerror}.") from error
    source = _hash(code)
    _loaded[home] = code
    name = f"{_PLUGIN_MODULES}{path.stem}_{source}_{_hash(str(path.absolute()).encode())}"
    if name in sys.modules:
        return sys.modules[name], source
    spec = spec_from_file_location(name, path)
    assert spec is not None
    module = module_from_spec(spec)
    module.__fedwatt_reference__ = home  # type: ignore[attr-defined]
    sys.modules[name] = module  # dataclasses look their module up there
    try:
        with _on_path(path.absolute().parent):
            exec(compile(code, str(path.absolute()), "exec"), vars(module))
    except BaseException:
        del sys.modules[name]
        raise
    return module, source


def _readable(home: str) -> bool:
    return home in _carried or Path(home).expanduser().is_file()


@contextmanager
def _on_path(folder: Path) -> Iterator[None]:
    """Put a plugin's folder on the import path, as Python does for a script."""
    text = str(folder)
    sys.path.insert(0, text)
    try:
        yield
    finally:
        if text in sys.path:
            sys.path.remove(text)


def _broken(home: str, error: Exception) -> str:
    line = f", line {error.lineno}" if isinstance(error, SyntaxError) else ""
    text = error.msg if isinstance(error, SyntaxError) else str(error)
    return f"{home}{line} cannot be loaded: {type(error).__name__}: {text}."


def _kind(value: Any) -> str:
    """Return a few words on what an object is."""
    if isinstance(value, type):
        return f"the class {value.__name__}"
    return f"a {type(value).__name__}"


def _hash(content: bytes) -> str:
    return sha256(content).hexdigest()[:32]
