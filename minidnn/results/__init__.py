"""The results: one family of records with a version. `--json` prints one of these documents, and functions of Python
return their rows.

A document says its kind and the version of this form. `documents.py` has the table of all, and docs/results.md lists
them, with the one of minidnn_papers. A name means the same in all documents (`words.py`).
"""

from minidnn.results.record import VERSION, Document, Record

__all__ = ["VERSION", "Document", "Record"]
