"""The costs of ops and copies: seconds and workspace per (op, algorithm), link bandwidths, device memory.

This folder holds values only: nothing here runs an op. A Costs has one of three origins, and names it:
  profile("titan_x")   predicted for a GPU, by a roofline from costs/gpus/*.yaml (docs/costs.md); no GPU is needed
  measured(device, …)  measured on this machine by measuring/ops.py, and kept in a cache file
  estimate(device)     one fixed roofline for any CPU, where copies and ops take turns. It ranks ops rightly, but its
                       seconds are not those of the machine. It is the same on every machine, and so are the plans made
                       with it.
"""

from __future__ import annotations

from minidnn.costs.cache import Measurements, NotKept, geometry, key, measured, measurements, whole
from minidnn.costs.costs import (
    BLOCKING,
    MOST_DRAG,
    Choice,
    Costs,
    Disk,
    Drag,
    Heuristic,
    Peer,
    Staging,
    bound_by,
    offered,
    remembering,
)
from minidnn.costs.device_spec import CPU, Rates
from minidnn.costs.estimates import estimate
from minidnn.costs.profiles import ProfileError, gpu, gpus, named, profile
from minidnn.costs.roofline import GPU

__all__ = [
    "BLOCKING", "CPU", "GPU", "MOST_DRAG", "Choice", "Costs", "Disk", "Drag", "Heuristic", "Measurements", "NotKept",
    "Peer", "ProfileError", "Rates", "Staging", "bound_by", "estimate", "geometry", "gpu", "gpus", "key", "measured",
    "measurements", "named", "offered", "profile", "remembering", "whole",
]  # fmt: skip
