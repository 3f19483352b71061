"""Configurations: complete on the way out, strict on the way in."""

import pytest

from fedwatt.errors import SettingError
from fedwatt.methods import Fractional
from fedwatt.runs.config import (
    RunConfig,
    choose,
    differences,
    from_tables,
    from_toml,
    override,
    read_config,
    to_toml,
)

EXAMPLE = """
seeds = [4, 5]
[fleet]
vehicles = 7
[training]
rounds = 12
learning_rate = 1
[model]
name = "gru"
hidden = [16]
[availability]
speeds = [1.0, 0.5]
[[method]]
name = "fedavg"
label = "slow fedavg"
learning_rate = 0.01
[[method]]
name = "fo-ri-fedavg"
alpha = 0.7
"""


def test_a_configuration_is_read_and_written_back_whole() -> None:
    config = from_toml(EXAMPLE)
    assert config.seeds == (4, 5)
    assert config.training.learning_rate == 1.0  # a whole number is a number
    slow, ours = config.methods
    assert (slow.label, slow.method.name) == ("slow fedavg", "fedavg")
    assert slow.training(config.training).learning_rate == 0.01
    assert ours.training(config.training).learning_rate == 1.0
    fractional = ours.method.local[1]
    assert isinstance(fractional, Fractional)
    assert fractional.alpha == 0.7
    written = to_toml(config)
    assert "probe_every = 5" in written  # defaults are written out, too
    assert from_toml(written) == config
    assert to_toml(from_toml(written)) == written


def test_the_defaults_compare_the_paper_with_fedavg() -> None:
    config = from_toml("")
    assert config == RunConfig()
    assert [choice.label for choice in config.methods] == ["fedavg", "fo-ri-fedavg"]


def test_assignments_reach_sections_methods_and_the_top() -> None:
    tables = override(
        {"training": {"rounds": 3}},
        ["training.learning_rate=0.01", "fo-ri-fedavg.alpha=0.6", "model.name=gru", "seeds=[7]"],
    )
    config = from_tables(tables)
    assert (config.training.rounds, config.training.learning_rate) == (3, 0.01)
    assert config.methods[1].method.settings["alpha"] == 0.6
    assert config.model.name == "gru"
    assert config.seeds == (7,)


@pytest.mark.parametrize(
    "text",
    [
        "training.learning_rate=0.01",
        "training.learning_rate = 0.01",
        " training . learning_rate=0.01",
    ],
)
def test_one_rate_for_all_replaces_the_rates_of_the_default_methods(text: str) -> None:
    config = from_tables(override({}, [text]))
    assert [choice.training(config.training).learning_rate for choice in config.methods] == [
        0.01,
        0.01,
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[trainig]\nrounds=3", "Unknown section or key 'trainig'. Did you mean 'training'"),
        ("[training]\nround=3", "Unknown setting in training 'round'. Did you mean 'rounds'"),
        ("[training]\nrounds='ten'", "training.rounds must be a whole number, got 'ten'"),
        ("[training]\nrounds=true", "training.rounds must be a whole number, got True"),
        ("[training]\nrounds=0", r"Training\(rounds=0\): rounds must be at least 1"),
        ("[data]\nsplit=[0.5, 0.5]", "data.split must be a list of 3 values"),
        ("[model]\nhidden=64", "model.hidden must be a list of values in brackets, got 64"),
        ("training=3", r"'training' is a section: write its settings below \[training\]"),
        ("[method]\nname='fedavg'", r"written as \[\[method\]\] tables"),
        ("[[method]]\nalpha=0.5", "needs a name"),
        ("[[method]]\nname='fedporx'", "Did you mean 'fedprox'"),
        ("[[method]]\nname='fo-fedavg'\nalpha=2.0", r"alpha must be in \(0, 1\]"),
        ("[[method]]\nname='fedavg'\nlearning_rate=-1.0", "learning_rate must be above 0"),
        ("[[method]]\nname='fedavg'\nlabel='a/b'", "plain name"),
        ('[[method]]\nname="fedavg"\nlabel="a\\tb"', "plain name"),
        ("[[method]]\nname='fedavg'\n[[method]]\nname='fedavg'", "Two methods are called 'fedavg'"),
        ("method=[]", "methods must be one or more"),
        ("seeds=[1, 1]", "seeds must be one or more different"),
        ("device='tpu'", "device must be 'auto', 'cpu' or 'cuda'"),
        ("[fleet]\nvehicles=-1", "vehicles must be at least 0"),
        ("rounds 3", "is not valid TOML"),
    ],
)
def test_mistakes_are_named(text: str, message: str) -> None:
    with pytest.raises(SettingError, match=message):
        from_toml(text)


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("training.learning_rate", "is not of the form key=value"),
        ("trainig.learning_rate=1", "Did you mean 'training'"),
        ("fedprocks.mu=1", "Unknown section or method 'fedprocks'"),
        ("fedprox.mu=1", "is not among the methods of this run .* --method fedprox"),
    ],
)
def test_bad_assignments_are_named(assignment: str, message: str) -> None:
    with pytest.raises(SettingError, match=message):
        override({}, [assignment])


def test_a_missing_or_unreadable_file_is_named(tmp_path) -> None:
    with pytest.raises(SettingError, match=r"no configuration file .*nowhere.toml"):
        read_config(tmp_path / "nowhere.toml")
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SettingError, match="Cannot read the configuration file"):
        read_config(binary)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("fedavg, fedprox", "each: --method fedavg --method fedprox"),
        ("fedavg+", r"'fedavg\+': a name is missing"),
        ("fedavg@", "'fedavg@': a name is missing"),
        ("fedavg@krum@adam", r"Write 'fedavg@krum\+adam'"),
    ],
)
def test_a_name_that_is_no_composition_says_what_was_meant(name: str, message: str) -> None:
    with pytest.raises(SettingError, match=message):
        choose({"name": name})


def test_what_differs_is_named_with_both_values() -> None:
    old = from_toml(EXAMPLE)
    assert differences(old, old) == []
    new = EXAMPLE.replace("hidden = [16]", "hidden = [16, 8]").replace("learning_rate = 0.01", "")
    assert differences(old, from_toml(new)) == [
        "model.hidden [16] → [16, 8]",
        "slow fedavg.learning_rate 0.01 → nothing",
    ]
    more = EXAMPLE.replace("seeds = [4, 5]", "") + '[[method]]\nname = "fedprox"'
    assert differences(old, from_toml(more)) == [
        "seeds [4, 5] → [1, 2, 3]",
        'methods ["slow fedavg", "fo-ri-fedavg"] → ["slow fedavg", "fo-ri-fedavg", "fedprox"]',
    ]
