"""Policies side by side (`plan`, `compare`), and the answer to a refused budget."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from minidnn.results.record import Document, NetDocument, Record


class PolicyRow(Record):
    """One policy's plan of a net. A refused policy's numbers are those under the smallest budget it can keep."""

    policy: str
    algorithms: str = Field(description="how many passes of convolutions use each algorithm")
    fits: bool
    peak_bytes: int
    live_peak_bytes: int
    arena_bytes: int
    average_bytes: float = Field(description="live bytes, averaged over the time of a step")
    offload_bytes: int
    prefetch_bytes: int = Field(description="bytes that come back from the host in a step, without inputs")
    input_bytes: int = Field(description="bytes of batches that come to the device in a step")
    output_bytes: int = Field(description="bytes of outputs that leave the device in a step")
    host_bytes: int
    recomputed_ops: int
    step_seconds: float
    slowdown: float | None = Field(default=None, description="the time of a step over baseline's")
    bound_seconds: float | None = None
    gap: float | None = None
    stall_seconds: float
    identical: bool | None = Field(
        default=None,
        description="whether the run ended with the same bytes as baseline; null where it was not compared",
    )
    role_bytes: dict[str, int] = Field(description="live bytes at the peak, by what they are for")
    pinned_bytes: int
    pageable_bytes: int
    undo_bytes: int
    on_disk_bytes: int
    peer_bytes: int = Field(description="bytes of the memory of other GPUs or machines that the plan takes (--peer)")
    stored_bytes: int | None = Field(
        default=None, description="bytes of ordinary memory that the last step filled, packed or not"
    )
    smallest_budget_bytes: int | None = None
    smallest_host_budget_bytes: int | None = None
    smallest_host_ring_bytes: int | None = Field(
        default=None, description="the smallest ring that the refused policy could keep"
    )
    paper_peak_bytes: int | None = Field(default=None, description="the peak as the vDNN paper counts it")
    samples_per_second: float | None = None
    tokens: int | None = None
    efficiency: float | None = None
    exposed_seconds: float | None = None
    net_seconds: float | None = None
    sent_bytes: int | None = None
    ram_bytes: int | None = Field(
        default=None, description="bytes of this machine's memory that a run would take, all counted"
    )
    ram_plan_bytes: int | None = Field(
        default=None, description="of these, the arena if it lies there, and what is off the device"
    )
    ram_process_bytes: int | None = Field(
        default=None, description="of these, interpreter, libraries, programs and plans"
    )
    ram_data_bytes: int | None = Field(default=None, description="of these, data that are held in memory")
    ram_batches_bytes: int | None = Field(default=None, description="of these, batches on their way")
    ram_workers_bytes: int | None = Field(
        default=None, description="of these, what worker processes and the batches that they share take"
    )
    ram_working_bytes: int | None = Field(default=None, description="of these, kernels, threads and buffers")
    ram_closing_bytes: int | None = Field(
        default=None, description="of these, weights and state that leave a device's own memory at the end of the run"
    )
    timed_steps: int | None = None
    starts: int | None = Field(
        default=None, description="how often the policies were loaded again while these steps were timed"
    )
    step_seconds_low: float | None = Field(
        default=None,
        description="the lower end of the 95 % interval of that median; of fewer than six steps, the quickest",
    )
    step_seconds_high: float | None = Field(
        default=None, description="its upper end; of fewer than six steps, the slowest"
    )
    slowdown_low: float | None = Field(default=None, description="the lower end of its 95 % interval")
    slowdown_high: float | None = Field(default=None, description="the upper end")
    other_processors: float | None = Field(
        default=None,
        description="processors that other programs kept busy while the steps were timed, on average; null if the "
        "system does not say",
    )
    why: str | None = None


class Resident(Record):
    """A tensor that is on the device at the worst moment."""

    name: str
    tensor_bytes: int = Field(description="bytes of the tensor")
    role: str = Field(description="what the tensor is for")
    stays: str = Field(
        description="why it is on the device then: `in use`, `workspace`, `carried`, `on the way` or `kept`"
    )
    read: bool = Field(description="whether the op reads it, and does not write there")
    over: str = Field(description="the tensor whose bytes the op overwrites with this one")
    place: str | None = None


class Worst(Record):
    """The worst moment of a plan that was refused."""

    program: str
    op: str
    place: str | None = None
    number: int = Field(description="the number of the execution in the step, from 1")
    ops: int
    live_bytes: int = Field(description="bytes that live at that moment")
    held_bytes: dict[str, int] = Field(description="of these, those of each reason to stay")
    algorithm: str
    workspace_bytes: int
    leanest_algorithm: str = Field(description="the op's algorithm of least workspace")
    leanest_workspace_bytes: int = Field(description="bytes of workspace that it needs")
    residents: list[Resident] = Field(description="the tensors on the device at that moment")


class Peak(Worst):
    """The moment of a plan at which most bytes live."""

    policy: str


class EagerRow(Record):
    """What PyTorch itself takes for the same step, as predicted."""

    pytorch_way: str = Field(description="`eager`, or `checkpoint`: each repeated block under torch.utils.checkpoint")
    most_bytes: int = Field(description="bytes that PyTorch takes at most at once, by exact sizes")
    reserved_bytes: int | None = Field(
        description="bytes that CUDA's caching allocator would reserve for it; null for a step on the cpu"
    )
    blocks: list[str] = Field(description="the modules that are blocks, by their paths")


class Remedy(Record):
    """A change of the refused command, and what came of it."""

    options: str = Field(description="the options to add to the command")
    change: dict[str, Any] = Field(description="the same, by name")
    fits: bool
    planned: bool = Field(description="whether it was planned; if not, the bound excludes it")
    peak_bytes: int
    host_bytes: int | None = None
    batch: int | None = None
    step_seconds: float | None = None
    note: str = Field(description="a remark on the change")


class Refusal(Record):
    """Why a budget was refused, and what would fit."""

    policy: str
    why: str
    worst: Worst | None = Field(description="the worst moment of the refused plan")
    limit_bytes: int = Field(description="bytes of the device that were allowed")
    host: bool = Field(description="whether the refused budget is the host's, not the device's")
    reached_bytes: int
    least_bytes: int | None
    carried_bytes: int = Field(
        description="bytes of weights, optimizer state and statistics, whose number no batch changes"
    )
    carried_stays: bool = Field(default=False, description="whether weights and their state have to stay on the device")
    largest_batch: int | None = Field(
        description="by the bound, no larger batch has a plan within the limit that runs each op whole; 0: no batch "
        "has; null: not known"
    )
    tokens: int | None = None
    remedies: list[Remedy] = Field(description="the changes that fit, in the order in which they were tried")
    in_vain: list[Remedy] = Field(description="the changes that do not fit, the closest first")


class Plans(NetDocument):
    """`minidnn plan`: what policies do with a net's memory."""

    kind: Literal["plan"] = "plan"
    rows: list[PolicyRow]
    refused: Refusal | None = Field(
        default=None,
        description="the answer to the refused budget: why, and what would fit; null where nothing was refused,"
        " or where several policies were asked",
    )
    peaks: list[Peak] | None = Field(
        default=None, description="of a module of PyTorch, the moment of each policy's plan at which most bytes live"
    )
    pytorch: list[EagerRow] | None = Field(
        default=None, description="of a PyTorch module, the predicted bytes of PyTorch itself"
    )


class SavedPlan(Document):
    """`minidnn plan --save`: the plan that was written."""

    kind: Literal["saved_plan"] = "saved_plan"
    file: str
    policy: str
    peak_bytes: int


class Comparison(NetDocument):
    """`minidnn compare`: policies that were run or simulated, side by side."""

    kind: Literal["compare"] = "compare"
    rows: list[PolicyRow]
    beside_arena_bytes: int | None = None
