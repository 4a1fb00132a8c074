"""A solver's file: a net, and how to train it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from minidnn import sizes
from minidnn.schema.caffe import NetParameter
from minidnn.schema.common import NetState
from minidnn.schema.message import OURS, Message, Positive, Repeated, Uint, field


def _nbytes(value: Any) -> Any:
    return sizes.parse(value) if isinstance(value, str) else value


Bytes = Annotated[int, Field(ge=1), BeforeValidator(_nbytes)]


class Minidnn(Message):
    """The one key that Caffe does not have: how a net is run. Options of the command line and keywords overrule it."""

    policy: str | None = field(OURS, None)
    budget: Bytes | None = field(OURS + 1, None)
    host_budget: Bytes | None = field(OURS + 2, None)
    ram: Bytes | None = field(OURS + 3, None)  # of this machine's memory, for the whole process; jobs/ram.py
    host_ring: Bytes | None = field(OURS + 4, None)  # bytes of the pinned ring: memory/lowering/staging.py
    compress: bool = field(OURS + 5, False)  # whether tensors behind the ring are stored without their zeros
    device: str | None = field(OURS + 6, None)
    format: Literal["float32", "bfloat16", "float16"] | None = field(OURS + 7, None)  # of the network: formats.py
    loss_scale: Annotated[float, Field(gt=0, le=2.0**24)] = field(OURS + 8, 2.0**16)  # the first one, in float16
    state: Literal["device", "host", "all"] | None = field(OURS + 9, None)  # what lives on the host
    epochs: Positive | None = field(OURS + 10, None)  # to train; these four count as IN_EPOCHS says
    test_epochs: Positive | None = field(OURS + 11, None)
    display_epochs: Positive | None = field(OURS + 12, None)
    snapshot_epochs: Positive | None = field(OURS + 13, None)
    keep_best: str | None = field(OURS + 14, None)  # an output of a test net: training/keeping.py
    patience: Positive | None = field(OURS + 15, None)  # tests that are not better, until the run ends
    log: Repeated[str] = field(OURS + 16, ())  # files of JSON lines or CSV: training/logs
    tensorboard: str | None = field(OURS + 17, None)  # a folder
    disk: str | None = field(OURS + 18, None)  # "PATH" or "PATH:SIZE": memory/lowering/tiers.py
    pin_on_demand: bool = field(OURS + 19, False)  # instead of a ring: memory/execution/pinning.py


# Caffe's fields that count iterations, and ours that count epochs instead: training/epochs.py
IN_EPOCHS = {
    "max_iter": "epochs",
    "test_interval": "test_epochs",
    "display": "display_epochs",
    "snapshot": "snapshot_epochs",
}
Policy = Literal["fixed", "step", "exp", "inv", "multistep", "poly", "sigmoid", "cosine"]


class SolverParameter(Message):
    """A solver's file: a net, and how to train it."""

    net: str | None = field(24, None)
    net_param: NetParameter | None = field(25, None)
    train_net: str | None = field(1, None)
    train_net_param: NetParameter | None = field(21, None)
    test_net: Repeated[str] = field(2, ())
    test_net_param: Repeated[NetParameter] = field(22, ())
    train_state: NetState | None = field(26, None)
    test_state: Repeated[NetState] = field(27, ())
    test_iter: Repeated[Positive] = field(3, ())
    test_interval: Uint = field(4, 0)
    test_initialization: bool = field(32, True)
    test_compute_loss: bool = field(19, False)
    base_lr: Annotated[float, Field(ge=0)] = field(5)
    lr_policy: Policy = field(8, wire="string")
    gamma: float = field(9, 0.0)
    power: float = field(10, 0.0)
    stepsize: Uint = field(13, 0)
    stepvalue: Repeated[Uint] = field(34, ())
    rampup_interval: Uint = field(OURS, 0)  # NVIDIA's Caffe: the rate rises from rampup_lr
    rampup_lr: Annotated[float, Field(ge=0)] = field(OURS + 1, 0.0)
    max_iter: Uint = field(7, 0)
    iter_size: Positive = field(36, 1)
    momentum: Annotated[float, Field(ge=0)] = field(11, 0.0)
    momentum2: Annotated[float, Field(ge=0, lt=1)] = field(39, 0.999)
    rms_decay: Annotated[float, Field(ge=0, lt=1)] = field(38, 0.99)
    delta: Annotated[float, Field(gt=0)] = field(31, 1e-8)
    trust_coefficient: Annotated[float, Field(gt=0)] = field(OURS + 3, 0.001)  # of LARS
    weight_decay: Annotated[float, Field(ge=0)] = field(12, 0.0)
    regularization_type: Literal["L2", "L1"] = field(29, "L2", wire="string")
    clip_gradients: float = field(35, -1.0)  # the largest norm of all gradients; negative: no clipping
    display: Uint = field(6, 0)
    average_loss: Positive = field(33, 1)
    debug_info: bool = field(23, False)
    snapshot: Uint = field(14, 0)
    snapshot_prefix: str = field(15, "")
    # BINARYPROTO: Caffe's .caffemodel and .solverstate; its default, but not ours. HDF5 is read, but not obeyed.
    snapshot_format: Literal["HDF5", "BINARYPROTO", "SAFETENSORS"] = field(37, "SAFETENSORS")
    snapshot_after_train: bool = field(28, True)
    random_seed: Annotated[int, Field(lt=2**64)] = field(20, -1)  # negative: a new seed for each run, as in Caffe
    solver_type: Literal["SGD", "NESTEROV", "ADAGRAD", "RMSPROP", "ADADELTA", "ADAM"] | None = field(30, None, old=True)
    type: str = field(40, "SGD")  # a key of OPTIMIZERS (optimizers/__init__.py)
    solver_mode: Literal["CPU", "GPU"] = field(17, "GPU", obeyed=False)  # see `device` of minidnn
    device_id: int = field(18, 0, obeyed=False)  # likewise
    minidnn: Minidnn = field(OURS + 2, Minidnn())
