"""Nets that fit, trained for a step: under two policies, the second in its smallest budget, the same bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
from hypothesis import strategies as st

from minidnn.errors import BadInput, Failed
from minidnn.memory.budget import BudgetError
from minidnn.nets.net import Net
from minidnn.training.solver import Solver
from tests.fuzz.kind import Fault, Kind, readable, strictly
from tests.fuzz.nets import CLASSES, nets
from tests.fuzz.pieces import document, encoded
from tests.support.policies import EVERY

SAMPLES = 8


@st.composite
def files(draw: Any) -> bytes:
    return encoded(document(draw(nets(6, sources=False))))


def check(data: bytes, folder: Path) -> bool:
    path = folder / "net.yaml"
    path.write_bytes(data)
    net = Net.from_file(path)
    chance = crc32(data)
    policies = [name for name in EVERY if name.endswith(":m")]
    policy, device = policies[chance % len(policies)], "reference" if chance % 4 == 0 else "cpu"
    fields = [{}, {"momentum": 0.9}, {"iter_size": 2, "clip_gradients": 0.5}, {"weight_decay": 0.01}][chance // 4 % 4]
    try:
        want = trained(net, "baseline:m", device, None, fields)
    except (BadInput, Failed) as error:  # nothing to train, or a step that diverges
        readable(str(error))
        return False
    try:
        trained(net, policy, device, 1, fields)
        raise Fault(f"{policy} trains in one byte")
    except BudgetError as refusal:
        smallest = refusal.smallest
    if trained(net, policy, device, smallest, fields) != want:
        raise Fault(f"{policy} in {smallest} bytes on {device} ends with other bytes than baseline")
    return True


def trained(net: Net, policy: str, device: str, budget: int | None, fields: Any) -> dict[str, bytes]:
    random = np.random.default_rng(7)
    shape = net.graph("TRAIN").layers[0].tops[0].tensor.shape
    data = random.standard_normal((SAMPLES, *shape[1:])).astype(np.float32), random.integers(0, CLASSES, SAMPLES)
    with strictly(), Solver(
        net, policy=policy, device=device, budget=budget, seed=3, data=(data[0], data[1].astype(np.int32)), max_iter=1,
        base_lr=0.01, lr_policy="fixed", debug=True, **fields,
    ) as solver:  # fmt: skip
        loss = solver.step().loss
        return {"loss": np.float64(loss).tobytes(), **{name: a.tobytes() for name, a in solver.values().items()}}


KIND = Kind("training", files(), check, 8)
