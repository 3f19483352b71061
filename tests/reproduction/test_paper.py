"""The tables that the paper prints, and the studies that stand beside them."""

from math import inf

import pytest

from fedwatt.errors import SettingError
from reproduction.catalogue import STUDIES, select
from reproduction.paper import names, printed


def test_every_printed_table_can_be_read() -> None:
    assert len(names()) == 26
    for name in names():
        table = printed(name)
        assert table.label and table.caption and table.dataset
        for row in table.rows.values():
            assert len(row) == len(table.columns)


def test_printed_numbers_are_the_papers() -> None:
    main = printed("main")
    assert str(main.entry("fo-ri-fedavg", "VED RMSE")) == "41.92 ± 0.22"
    assert main.entry("fedavg", "eVED RMSE").std == 0.35
    assert printed("thresholds").entry("fedavg", "VED 45").mean == inf
    assert printed("scaling").entry("moon", "200 eVED").mean == 79.9216
    assert printed("probe-sensitivity").entry("M=10 m=100 B=128 R=1", "VED overhead").mean == 18.69
    assert main.entry("fedavg", "no such column") is None
    with pytest.raises(SettingError, match="Unknown table"):
        printed("mian")


def test_tables_whose_numbers_contradict_others_say_so() -> None:
    assert any("estimated" in note for note in printed("scaling").notes)
    for name in ("main", "thresholds", "round-time", "components", "churn-drift"):
        assert printed(name).notes, name


def test_studies_stand_beside_every_printed_table() -> None:
    beside = [name for study in STUDIES.values() for name in study.printed]
    assert sorted(set(beside)) == names()


def test_studies_are_chosen_in_the_papers_order() -> None:
    assert [s.name for s in select(["seeds", "main"])] == ["main", "seeds"]
    assert len(select(["all"])) == len(STUDIES) == 41
    with pytest.raises(SettingError, match="Did you mean 'alpha'"):
        select(["alhpa"])
