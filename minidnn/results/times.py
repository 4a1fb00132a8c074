"""Seconds of layers, algorithms and ops, and of copies: `time`, `profile`, `devices`."""

from __future__ import annotations

from typing import Literal

from minidnn.results.record import Document, NetDocument, Record


class LayerTime(Record):
    """The seconds of one layer in a step."""

    layer: str
    forward_seconds: float
    backward_seconds: float
    update_seconds: float
    share: float


class LayerTimes(NetDocument):
    """`minidnn time`: the seconds of each layer."""

    kind: Literal["time"] = "time"
    rows: list[LayerTime]
    policy: str
    step_seconds: float
    timed_steps: int


class AlgorithmTime(Record):
    """One algorithm of one op."""

    layer: str
    part: str
    op: str
    algorithm: str
    workspace_bytes: int
    op_seconds: float
    chosen: bool


class AlgorithmSum(Record):
    """A sum over all ops; of the workspaces, the largest."""

    op_seconds: float
    workspace_bytes: int


class AlgorithmTimes(NetDocument):
    """`minidnn time --algorithms`: each convolution pass by each of its algorithms."""

    kind: Literal["algorithms"] = "algorithms"
    rows: list[AlgorithmTime]
    policy: str
    chosen_sum: AlgorithmSum
    fastest_sum: AlgorithmSum
    least_sum: AlgorithmSum


class Beside(Record):
    """Copies while an op runs."""

    bound_by: str
    op: str
    bandwidth_out: float
    bandwidth_in: float
    slower: float
    drag_out: float | None = None
    drag_in: float | None = None


class MeasuredOp(Record):
    """A measured op, by one of its algorithms."""

    program: str
    op: str
    op_kind: str
    algorithm: str
    workspace_bytes: int
    op_seconds: float
    flops: int
    operand_bytes: int
    key: str


class Profile(NetDocument):
    """`minidnn profile`: this machine's costs of a net."""

    kind: Literal["profile"] = "profile"
    rows: list[MeasuredOp]
    bandwidth_out: float
    bandwidth_in: float
    latency_seconds: float
    beside_compute: list[Beside]
    cache: str
    measured_now: int
    refused_algorithms: dict[str, str]


class DeviceRow(Record):
    """A device to run on. If it cannot be used, `why` says so, and nothing else is known."""

    name: str
    available: bool
    why: str | None = None
    description: str | None = None
    found: str | None = None
    memory_bytes: int | None = None
    beside_arena_bytes: int | None = None
    bandwidth_out: float | None = None
    bandwidth_in: float | None = None
    bandwidth_out_beside: float | None = None
    bandwidth_in_beside: float | None = None
    beside_compute: list[Beside] | None = None


class GpuRow(Record):
    """A GPU to simulate."""

    name: str
    title: str
    memory_bytes: int
    peak_flops: float
    tf32_flops: float | None
    float16_flops: float | None
    bfloat16_flops: float | None
    memory_bandwidth: float
    link_out: float
    link_in: float


class LinkRow(Record):
    """A link between ranks, to simulate."""

    name: str
    title: str
    net_bandwidth: float
    message_seconds: float
    gap_seconds: float


class DiskRow(Record):
    """A disk that was measured, for tensors behind the host's memory."""

    path: str
    file_system: str
    direct: bool
    free_bytes: int
    write_bandwidth: float
    read_bandwidth: float
    write_bandwidth_beside: float
    read_bandwidth_beside: float
    cache: str


class Devices(Document):
    """`minidnn devices`: the devices to run on, the GPUs to simulate, the links between ranks, and a disk."""

    kind: Literal["devices"] = "devices"
    devices: list[DeviceRow]
    gpus: list[GpuRow]
    links: list[LinkRow]
    disks: list[DiskRow]


class MessagesRow(Record):
    """Messages that each rank sent to each other one."""

    messages: int
    message_bytes: int
    transfer_seconds: float
    fitted_seconds: float


class MeasuredLink(Document):
    """`minidnn devices --link`: the link between the ranks that a launcher has started."""

    kind: Literal["link"] = "link"
    rows: list[MessagesRow]
    ranks: int
    device: str
    description: str
    net_bandwidth: float
    message_seconds: float
    gap_seconds: float
    net_drag: float
    own_bandwidth: float | None
    file: str
