"""The generated pages of the methods say what the catalogue and the docstrings say."""

import re
import tomllib

import pytest

from fedwatt.methods import METHODS, LocalRule, get
from fedwatt.methods.catalogue import DEFENCES, LOCAL_RULES, SERVERS
from tools import method_pages
from tools.method_pages import FAMILIES, command, main_rules, mechanism, methods_of, page, written

PAGES = {family: page(family) for family in FAMILIES}


def sections(family: str) -> dict[str, str]:
    """Return the parts of a page by their method."""
    _, *parts = re.split(r"^## (.+)$", PAGES[family], flags=re.MULTILINE)
    return dict(zip(parts[::2], parts[1::2], strict=True))


SECTIONS = [(family, name, text) for family in FAMILIES for name, text in sections(family).items()]
NAMES = [name for _, name, _ in SECTIONS]


def test_each_method_of_the_catalogue_is_on_one_page() -> None:
    assert len(set(NAMES)) == len(NAMES)
    assert METHODS.keys() <= set(NAMES)


def test_each_rule_that_can_be_added_is_on_one_page() -> None:
    parts = [f"+{name}" for name in LOCAL_RULES]
    parts += [f"@{name}" for name in [*DEFENCES, *SERVERS] if name != "average"]
    for part in parts:
        assert sum(f"(`{part}`)" in text for text in PAGES.values()) == 1, part


def test_an_equation_fits_on_a_page_of_1280_pixels() -> None:
    lines = [line for text in PAGES.values() for line in text.splitlines()]
    assert [line for line in lines if line.startswith("    ") and len(line) > 82] == []


def table_rows(text: str) -> dict[str, str]:
    """Return the defaults of a section's table of hyperparameters."""
    return dict(re.findall(r"^\|`(\w+)`\|`([^`]*)`\|", text, re.MULTILINE))


@pytest.mark.parametrize(("family", "name", "text"), SECTIONS, ids=NAMES)
def test_a_default_on_the_page_is_that_of_the_catalogue(family: str, name: str, text: str) -> None:
    shown = table_rows(text)
    for other, settings in re.findall(r"^As of \[`(.+?)`\]\(.*?\): (.+)\.$", text, re.MULTILINE):
        defaults = table_rows(sections(family)[other])
        shown |= {setting: defaults[setting] for setting in re.findall(r"`(\w+)`", settings)}
    read = {setting: tomllib.loads(f"x = {default}")["x"] for setting, default in shown.items()}
    assert read == get(name).settings


def test_the_range_of_a_hyperparameter_is_on_the_page() -> None:
    assert "|`mu`|`0.01`|0.001 to 1, log|" in sections("baselines")["fedprox"]
    assert (
        "|`patience`|`5`||rounds with a falling loss" in sections("baselines")["fedprox-adaptive"]
    )


def test_what_a_method_sends_and_stores_is_on_the_page() -> None:
    # SCAFFOLD sends model and control both ways; each side stores its control.
    assert "|[`scaffold`](#scaffold)|`scaffold.py`|2|2|1|1|" in PAGES["baselines"]
    # FedExP uploads the length of the update beside it.
    assert "|[`fedexp`](#fedexp)|`adaptive.py`|1|1+1|0|0|" in PAGES["later"]


def test_the_rules_of_a_method_are_on_the_page() -> None:
    paper = sections("paper")["fo-ri-fedavg"]
    assert (
        "trains `RoughnessProximal` (`+roughness`) + `Fractional` (`+fractional`) → `Average`."
    ) in paper
    assert "trains plain SGD → `Krum` (`@krum`) → `Average`." in sections("robust")["fedavg@krum"]


@pytest.mark.parametrize("name", METHODS)
def test_a_method_has_an_equation_and_a_publication(name: str) -> None:
    texts = [text for rule in main_rules(get(name)) for text in mechanism(rule)]
    assert any(text.startswith("    ") for text in texts)
    assert re.search(r"arXiv\s\d{4}\.\d{5}|^Unpublished\.", "\n".join(texts))


def test_equations_stand_on_the_page_as_in_the_docstring() -> None:
    scaffold = sections("baselines")["scaffold"]
    assert "\n\n    local     v_h = g_h - c_k + c\n    option 2  c_k⁺ = " in scaffold
    assert "[arXiv 1910.06378](https://arxiv.org/abs/1910.06378)" in scaffold


def test_an_equation_is_shown_once_on_a_page() -> None:
    yogi = sections("baselines")["fedavg@yogi"]
    assert "Equations: [`fedadam`](#fedadam)." in yogi
    assert "m ← β₁ m" not in yogi


@pytest.mark.parametrize(("family", "name", "text"), SECTIONS, ids=NAMES)
def test_a_method_has_its_command(family: str, name: str, text: str) -> None:
    assert f"\n`fedwatt run --method {name}" in text


def test_the_command_of_a_private_method_chooses_its_sampling() -> None:
    assert command("fedavg@private") == (
        "fedwatt run --method fedavg@private --set training.sampling=poisson"
    )
    assert command("fedavg") == "fedwatt run --method fedavg"


class Halved(LocalRule):
    """Half a step.

    Of the mean:

        w_{t+1} = w_t + Δ̄/2
    """


class HalvedAgain(Halved):
    """Half of the half."""


class NoEquation(LocalRule):
    """Nothing.

    Indeed nothing.
    """


@pytest.mark.parametrize("kind", [Halved, HalvedAgain])
def test_the_mechanism_of_a_rule_is_in_its_docstring_or_that_of_a_base(
    kind: type[LocalRule],
) -> None:
    assert mechanism(kind()) == ("Of the mean:", "    w_{t+1} = w_t + Δ̄/2")


def test_a_rule_without_an_equation_has_no_mechanism() -> None:
    assert mechanism(NoEquation()) == ()


@pytest.mark.parametrize(
    ("value", "text"), [(True, "true"), ("age", '"age"'), ("", '""'), (1e-8, "1e-08"), (5, "5")]
)
def test_defaults_are_written_as_in_a_configuration_file(value: object, text: str) -> None:
    assert written(value) == text


def test_counts_of_numbers_are_written_in_models() -> None:
    assert method_pages.models(0, 100) == "0"
    assert method_pages.models(200, 100) == "2"
    assert method_pages.models(201, 100) == "2+1"
    assert method_pages.models(7, 100) == "+7"


def test_the_families_are_listed_with_their_methods() -> None:
    table = method_pages.families_table()
    assert (
        "|[The paper's methods](methods/paper.md)|`fo-fedavg` `ri-fedavg` `fo-ri-fedavg`|" in table
    )
    assert methods_of("private") == ["fedavg@private"]
