"""Cells on a Ray cluster give the records of one process."""

from pathlib import Path

from reproduction.cell import Cell
from reproduction.lab import Lab
from tests.cluster import on_ray
from tests.reproduction.small import TINY, Counting, cells_of_a_run


@on_ray
def test_cells_of_the_paper_on_ray_are_those_of_one_process(cluster, tmp_path: Path) -> None:
    cells = [*cells_of_a_run()[:2], Cell(dataset="synthetic", method="fedavg", purpose="time")]
    there = Lab(TINY, tmp_path / "there", device="cpu", ray=cluster.address)
    observer = Counting()
    there.run(cells, observer)
    assert [cell.purpose for cell in observer.trained] == ["time"]  # timed here, the others there
    here = Lab(TINY, tmp_path / "here", device="cpu")
    here.run(cells, Counting())
    keys = sorted(path.name for path in here.cells.iterdir())
    assert len(keys) == 3 and keys == sorted(path.name for path in there.cells.iterdir())
    for key in keys:
        for file in ("cell.json", "rounds.parquet"):
            assert (here.cells / key / file).read_bytes() == (there.cells / key / file).read_bytes()
