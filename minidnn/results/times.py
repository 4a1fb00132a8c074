"""Seconds of layers, algorithms and ops, and of copies: `time`, `profile`, `devices`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from minidnn.results.record import Document, NetDocument, Record


class LayerTime(Record):
    """The seconds of one layer in a step."""

    layer: str
    forward_seconds: float = Field(description="seconds of the layer's forward ops in a step")
    backward_seconds: float = Field(description="seconds of its backward ops, and of ops that run again")
    update_seconds: float = Field(description="seconds of its updates of weights")
    share: float = Field(description="the layer's part of the seconds of all layers")


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
    part: str = Field(description="which pass of the layer: forward, backward_filter, ...")
    op: str
    algorithm: str
    workspace_bytes: int
    op_seconds: float
    chosen: bool = Field(description="whether the policy takes it")


class AlgorithmSum(Record):
    """A sum over all ops; of the workspaces, the largest."""

    op_seconds: float
    workspace_bytes: int


class AlgorithmTimes(NetDocument):
    """`minidnn time --algorithms`: each convolution pass by each of its algorithms."""

    kind: Literal["algorithms"] = "algorithms"
    rows: list[AlgorithmTime]
    policy: str
    chosen_sum: AlgorithmSum = Field(description="the sum with the algorithms that the policy takes")
    fastest_sum: AlgorithmSum = Field(description="the sum with the fastest algorithms")
    least_sum: AlgorithmSum = Field(description="the sum with those of least workspace")


class Beside(Record):
    """Copies while an op runs."""

    bound_by: str = Field(description="what bounds that op: memory or arithmetic")
    op: str
    bandwidth_out: float
    bandwidth_in: float
    slower: float = Field(description="how many times as long the op takes beside copies")
    drag_out: float | None = Field(default=None, description="seconds that the op loses for each second of a copy out")
    drag_in: float | None = Field(default=None, description="the same for a copy in")


class MeasuredOp(Record):
    """A measured op, by one of its algorithms."""

    program: str
    op: str
    op_kind: str = Field(description="the kind of the op")
    algorithm: str
    workspace_bytes: int
    op_seconds: float
    flops: int
    operand_bytes: int = Field(description="bytes that the op reads and writes")
    key: str = Field(description="the name of the measurement in the cache")


class Profile(NetDocument):
    """`minidnn profile`: this machine's costs of a net."""

    kind: Literal["profile"] = "profile"
    rows: list[MeasuredOp]
    bandwidth_out: float
    bandwidth_in: float
    latency_seconds: float = Field(description="seconds that a copy takes before its first byte")
    beside_compute: list[Beside]
    cache: str
    measured_now: int = Field(description="how many of them were made now")
    refused_algorithms: dict[str, str] = Field(
        description="the algorithms that the device refused to run, and why, by the name of the measurement"
    )


class DeviceRow(Record):
    """A device to run on. If it cannot be used, `why` says so, and nothing else is known."""

    name: str
    available: bool = Field(description="whether it can be used here")
    why: str | None = None
    description: str | None = None
    found: str | None = Field(default=None, description="what its libraries are, and where they were found")
    memory_bytes: int | None = None
    beside_arena_bytes: int | None = None
    bandwidth_out: float | None = None
    bandwidth_in: float | None = None
    bandwidth_out_beside: float | None = Field(
        default=None, description="bytes per second to the host while a copy goes the other way"
    )
    bandwidth_in_beside: float | None = Field(
        default=None, description="bytes per second from the host while a copy goes the other way"
    )
    beside_compute: list[Beside] | None = None


class GpuRow(Record):
    """A GPU to simulate."""

    name: str
    title: str
    memory_bytes: int
    peak_flops: float = Field(description="float32 operations per second")
    tf32_flops: float | None = Field(
        description="operations per second of products rounded to TF32; null without tensor cores for them"
    )
    float16_flops: float | None = Field(
        description="operations per second of products of float16; null without tensor cores for them"
    )
    bfloat16_flops: float | None = Field(
        description="operations per second of products of bfloat16; null without tensor cores for them"
    )
    memory_bandwidth: float = Field(description="bytes per second between the GPU and its memory")
    link_out: float = Field(description="bytes per second from the GPU to the host")
    link_in: float = Field(description="bytes per second from the host to the GPU")


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
    file_system: str = Field(
        description="the type of the file system, such as ext4; empty where the system does not say"
    )
    direct: bool = Field(description="whether reads and writes go past the system's cache")
    free_bytes: int = Field(description="bytes that are free there")
    write_bandwidth: float = Field(description="bytes per second that are written, with nothing read meanwhile")
    read_bandwidth: float = Field(description="bytes per second that are read, with nothing written meanwhile")
    write_bandwidth_beside: float = Field(description="bytes per second that are written while others are read")
    read_bandwidth_beside: float = Field(description="bytes per second that are read while others are written")
    cache: str


class Devices(Document):
    """`minidnn devices`: the devices to run on, the GPUs to simulate, the links between ranks, and a disk."""

    kind: Literal["devices"] = "devices"
    devices: list[DeviceRow] = Field(description="the devices to run on")
    gpus: list[GpuRow] = Field(description="the GPUs to simulate")
    links: list[LinkRow] = Field(description="the links between ranks to simulate")
    disks: list[DiskRow] = Field(description="the disk that `--disk` names, measured; else none")


class MessagesRow(Record):
    """Messages that each rank sent to each other one."""

    messages: int = Field(description="messages to each other rank")
    message_bytes: int = Field(description="bytes of each of them")
    transfer_seconds: float = Field(description="seconds until all ranks have all of them: the median")
    fitted_seconds: float = Field(description="the same by the numbers of the link")


class NumberRow(Record):
    """A number of a GPU's profile that was measured."""

    profile_field: str = Field(description="the name of a number in a profile")
    assumed_value: float | None = Field(description="what the profile of this card has; null where it has none")
    measured_value: float = Field(description="what was measured on this card")


class MeasuredCard(Document):
    """`minidnn devices --profile`: the profile of the GPU at hand, measured."""

    kind: Literal["card"] = "card"
    rows: list[NumberRow]
    device: str
    description: str
    file: str


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
    net_drag: float = Field(description="seconds that an op loses for each second of concurrent communication")
    own_bandwidth: float | None = Field(description="bytes per second at which a rank copies its own part")
    file: str
