"""Scratch: the bytes that an operator of PyTorch takes beside its results, at its peak.

    scratch = Scratch("cpu")
    found = scratch.of([Call.of_node(node) for node in calls])      found[0].nbytes, found[0].origin

Each is measured once: the operator runs alone, on tensors of its arguments' shapes that are made for it, and PyTorch's
allocator is followed meanwhile (minidnn/torch/memory.py). The value is kept in the user's cache. What cannot run here
has a value from a table (`cpu.py`, `cuda.py`), and says so.
"""

from minidnn.torch.scratch.calls import Call, Form
from minidnn.torch.scratch.scratch import KEPT, MEASURED, ORIGINS, TABLE, UNKNOWN, Found, Scratch, by_origin

__all__ = ["KEPT", "MEASURED", "ORIGINS", "TABLE", "UNKNOWN", "Call", "Form", "Found", "Scratch", "by_origin"]
