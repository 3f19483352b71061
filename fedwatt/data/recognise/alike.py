"""The files of a recording: those with the same columns, and a look into each."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from fedwatt.data.readers.table_blocks import tidy
from fedwatt.data.recognise.table_sample import TableSample, read_sample
from fedwatt.errors import DataError

LOOKED_AT = 40
"""Files that are looked into; of more, these are spread over all of them."""


def files_alike(paths: Sequence[Path]) -> tuple[list[TableSample], list[Path], list[str]]:
    """Samples of files with the same columns; all files to read; sentences on those left out."""
    readable = [path for path in paths if path.suffix.lower() != ".7z"]
    if not readable:
        raise DataError(f"{paths[0].name} is an archive. Unpack it and name what is inside.")
    step = -(-len(readable) // LOOKED_AT)
    samples = [read_sample(path) for path in readable[::step]]
    columns = {sample.path: tuple(map(tidy, sample.columns)) for sample in samples}
    kinds = Counter(columns.values())
    usual = max(kinds, key=lambda kind: (kinds[kind], len(kind)))
    others = [path for path, names in columns.items() if names != usual]
    alike = [sample for sample in samples if sample.path not in others]
    filled = [sample for sample in alike if sample.rows.height]
    empty = [sample.path for sample in alike if not sample.rows.height] if filled else []
    remarks = [f"{path.name} has other columns than most files and is left out." for path in others]
    remarks += [f"{path.name} has a header and no rows." for path in empty]
    left_out = {*others, *empty}
    # The longest file shows most of what columns hold.
    filled.sort(key=lambda sample: -sample.rows.height)
    return filled or alike, [path for path in readable if path not in left_out], remarks
