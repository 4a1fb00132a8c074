"""The kinds of input, by name."""

from __future__ import annotations

from tests.fuzz.kind import Kind
from tests.fuzz.kinds import arguments, gpu, idx, net, npz, plan, snapshot, solver, training, yaml

KINDS: dict[str, Kind] = {
    module.KIND.name: module.KIND for module in (arguments, yaml, net, solver, plan, snapshot, npz, idx, gpu, training)
}
