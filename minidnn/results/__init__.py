"""The results: one family of records with a version. `--json` prints one of these documents, and functions of Python
return their rows.

A document says its kind and the version of this form. docs/results.md lists all of them, and the one of
minidnn_papers. A name means the same in all documents (`words.py`).
"""

from minidnn.results.board import Board
from minidnn.results.budgets import Cards, Frontier, Search, Tuning
from minidnn.results.contents import Contents
from minidnn.results.others import Conversion, Packing
from minidnn.results.policies import Comparison, Plans, SavedPlan
from minidnn.results.ranks import Scaling
from minidnn.results.record import VERSION, Document, Record
from minidnn.results.runs import Generated, Predictions, Testing, Training
from minidnn.results.summary import Summary
from minidnn.results.times import AlgorithmTimes, Devices, LayerTimes, MeasuredCard, MeasuredLink, Profile

__all__ = ["DOCUMENTS", "VERSION", "Document", "Record"]

DOCUMENTS: dict[str, type[Document]] = {
    str(model.model_fields["kind"].default): model
    for model in (
        Summary, Plans, SavedPlan, Comparison,
        Cards, Frontier, Board, Search, Scaling, Tuning, LayerTimes, AlgorithmTimes, Profile, Devices, MeasuredCard,
        MeasuredLink, Training, Testing, Predictions, Generated, Contents, Conversion, Packing,
    )
}  # fmt: skip
