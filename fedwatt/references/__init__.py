"""What a fleet would have without federating: the rows that every result is to be read beside."""

from fedwatt.references.rows import REFERENCES, Reference, References, reference_rows

__all__ = ["REFERENCES", "Reference", "References", "reference_rows"]
