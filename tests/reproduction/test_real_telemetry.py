"""Committed records can be repeated: the telemetry that the code makes today is theirs."""

from collections import Counter

import pytest

from reproduction.cell import Cell
from reproduction.data import find_sources
from reproduction.lab import Lab
from reproduction.markdown import ROOT
from reproduction.scale import SCALES
from tests.real_data import real_file

RECORDS = ROOT / "results" / "reproduction"


@pytest.mark.parametrize("dataset", ["ved", "ved-enriched"])
def test_the_telemetry_of_records_is_that_of_today(dataset: str, tmp_path) -> None:
    folder = real_file("ved/EV_PHEV.parquet").parent
    if dataset == "ved-enriched":
        real_file("annarbor/srtm3_posts.csv")
    sources = find_sources([folder.parent])
    lab = Lab(SCALES["paper"], tmp_path, sources, "cpu", RECORDS)
    usual = Cell(dataset=dataset, method="fedavg")
    hashes = Counter(
        record.facts["fleet"]["hash"]
        for record in lab.every
        if lab.identity(record.cell) == lab.identity(usual)
    )
    assert hashes.keys() == {lab.fleet(usual).data_hash()}
