"""What ops and copies cost: seconds and workspace per (op, algorithm), link bandwidths, device memory.

Values only; nothing here runs an op. A Costs comes from one of three places, and says which:
  profile("titan_x")   predicted for a GPU that need not be here: gpus/*.yaml, a roofline (docs/costs.md)
  measured(device, …)  from seconds that measuring/ took on the machine at hand, kept in a cache file
  estimate(device)     one fixed roofline for any CPU: right in order, not in number; the same on every
                       machine, so that plans made with it are too
"""

from __future__ import annotations

from minidnn.costs.cache import Measurements, NotKept, geometry, key, measured, measurements
from minidnn.costs.costs import Choice, Costs, Staging, remembering
from minidnn.costs.estimates import CPU, Rates, estimate
from minidnn.costs.profiles import GPU, ProfileError, gpu, gpus, profile

__all__ = [
    "CPU", "GPU", "Choice", "Costs", "Measurements", "NotKept", "ProfileError", "Rates", "Staging",
    "estimate", "geometry", "gpu", "gpus", "key", "measured", "measurements", "profile", "remembering",
]  # fmt: skip
