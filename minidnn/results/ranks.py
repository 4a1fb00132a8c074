"""Several ranks, simulated: speed against their number."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from minidnn.results.record import NetDocument, Record


class ScalingRow(Record):
    """So many ranks under one policy, planned and simulated. A refused row has no numbers."""

    policy: str
    ranks: int
    batch: int
    fits: bool
    iteration_seconds: float | None = Field(
        default=None, description="seconds of an iteration: all micro-batches up to an update"
    )
    samples_per_second: float | None = None
    efficiency: float | None = None
    exposed_seconds: float | None = None
    net_seconds: float | None = None
    compute_seconds: float | None = Field(
        default=None, description="seconds of an iteration without the time of communication"
    )
    saved_without_latency_seconds: float | None = Field(
        default=None, description="seconds of an iteration that a link without latency would save"
    )
    saved_without_bytes_seconds: float | None = Field(
        default=None, description="seconds of an iteration that a link of unlimited bandwidth would save"
    )
    sent_bytes: int | None = None
    peak_bytes: int | None = None
    host_bytes: int | None = None
    why: str | None = None


class Scaling(NetDocument):
    """`minidnn plan --ranks 1,2,4`: speed against the number of ranks."""

    kind: Literal["scaling"] = "scaling"
    rows: list[ScalingRow]
    budget_bytes: int | None = None
    global_batch: int | None = Field(
        default=None, description="samples per update over all ranks, if they were divided"
    )
