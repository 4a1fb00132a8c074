"""Solver files, with their net within or beside: planned by the command; once written they are the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from zlib import crc32

from hypothesis import strategies as st

from minidnn.errors import BadInput
from minidnn.jobs.solver_file import understand
from minidnn.layers import LAYERS
from minidnn.optimizers import OPTIMIZERS
from minidnn.schema import Document, SolverParameter, check_solver, plain
from tests.fuzz.kind import Fault, Kind, command, readable, same
from tests.fuzz.kinds.net import OTHER_REASONS
from tests.fuzz.nets import FIELDS, nets
from tests.fuzz.pieces import PIECES, altered, damaged, document, encoded, pick

FILE = "solver.yaml"
NET = """name: beside
layer:
- {name: data, type: Data, top: [data, label], data_param: {source: digits, batch_size: 2}}
- {name: ip, type: InnerProduct, bottom: data, top: ip, inner_product_param: {num_output: 10}}
- {name: loss, type: SoftmaxWithLoss, bottom: [ip, label], top: loss}
"""
RATES = [
    {"lr_policy": "fixed"}, {"lr_policy": "step", "gamma": 0.5, "stepsize": 2}, {"lr_policy": "exp", "gamma": 0.99},
    {"lr_policy": "inv", "gamma": 1e-4, "power": 0.75}, {"lr_policy": "multistep", "gamma": 0.1, "stepvalue": [3, 6]},
    {"lr_policy": "poly", "power": 2.0}, {"lr_policy": "sigmoid", "gamma": -0.1, "stepsize": 5},
    {"lr_policy": "cosine"},
]  # fmt: skip
MORE: list[dict[str, Any]] = [
    {"momentum": 0.9}, {"weight_decay": 5e-4}, {"weight_decay": 0.1, "regularization_type": "L1"}, {"iter_size": 2},
    {"clip_gradients": 1.0}, {"test_iter": 1, "test_interval": 2}, {"test_initialization": False}, {"display": 1},
    {"average_loss": 3}, {"snapshot": 2}, {"snapshot_prefix": "out/x"}, {"random_seed": 3}, {"type": "SGD"},
    {"type": "Nesterov"}, {"type": "Adam", "momentum": 0.9}, {"type": "AdaGrad"}, {"type": "LARS"}, {"type": "LAMB"},
    {"solver_mode": "CPU"}, {"rampup_interval": 3, "rampup_lr": 0.001}, {"test_state": {"stage": "deploy"}},
    {"train_state": {"level": 1, "stage": ["a", "b"]}}, {"test_net": "net.yaml", "test_iter": 1},
]  # fmt: skip
RUN = [
    {"policy": "vdnn_all"}, {"policy": "layrub:m", "budget": "1GiB"}, {"host_budget": "64MiB"}, {"budget": 1000},
    {"host_ring": "1MiB", "compress": True}, {"pin_on_demand": True}, {"device": "reference"},
    {"format": "bfloat16"}, {"format": "float16"},
    {"policy": "vdnn_all", "disk": "."}, {"disk": "gone:1GiB"},
]  # fmt: skip


@st.composite
def files(draw: Any) -> bytes:
    tree: dict[str, Any] = {"net": "net.yaml"}
    inline = pick(draw, [False, True, True])
    if inline:
        tree = {"net_param": draw(nets(3))}
    tree |= {"base_lr": pick(draw, [0.0, 0.01, 1.0]), **pick(draw, RATES), "max_iter": 9}
    for more in draw(st.lists(st.sampled_from(MORE), max_size=4)):
        tree |= more
    if draw(st.booleans()):
        tree["minidnn"] = pick(draw, RUN)
    how = pick(draw, ["right", "altered", "altered", "altered", "damaged"])
    if how == "altered":
        tree = draw(altered(tree, FIELDS))
    data = encoded(document(tree, ""))
    return draw(damaged(data, PIECES)) if how == "damaged" else data


def check(data: bytes, folder: Path) -> bool:
    (folder / "net.yaml").write_text(NET)
    (folder / FILE).write_bytes(data)
    where = [["--gpu", "titan_x"], ["--gpu", "k40"], ["--device", "reference"]][crc32(data) % 3]
    ended = command("plan", FILE, *where)
    if ended.code and not all(word in ended.err + ended.out for word in OTHER_REASONS):
        names = (FILE, "disk: ", "net.yaml")  # an option of a run is named as on a command line
        readable(ended.err, next((name for name in names if name in ended.err), FILE))
    try:
        p = understand(FILE)[2]
    except BadInput:
        if not ended.code:
            raise Fault("the command accepts a solver that Python refuses") from None
        return False
    if p is not None:
        written = check_solver(Document(plain(p)), LAYERS, OPTIMIZERS)
        assert isinstance(written, SolverParameter)
        same("the solver and its plain values", written, p)
    return not ended.code


KIND = Kind("solver", files(), check, 25)
