"""All documents, by kind."""

from __future__ import annotations

from minidnn.results.board import Board
from minidnn.results.budgets import Cards, Frontier, Search, Tuning
from minidnn.results.contents import Contents
from minidnn.results.others import Conversion, Packing
from minidnn.results.policies import Comparison, Plans, SavedPlan
from minidnn.results.ranks import Scaling
from minidnn.results.record import Document
from minidnn.results.runs import Generated, Predictions, RateRange, Testing, Training
from minidnn.results.summary import Summary
from minidnn.results.times import AlgorithmTimes, Devices, LayerTimes, MeasuredCard, MeasuredLink, Profile

DOCUMENTS: dict[str, type[Document]] = {
    str(model.model_fields["kind"].default): model
    for model in (
        Summary, Plans, SavedPlan, Comparison,
        Cards, Frontier, Board, Search, Scaling, Tuning, RateRange, LayerTimes, AlgorithmTimes, Profile, Devices,
        MeasuredCard, MeasuredLink, Training, Testing, Predictions, Generated, Contents, Conversion, Packing,
    )
}  # fmt: skip
