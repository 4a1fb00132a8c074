"""Lists of policies, for tests that would take too long with every policy."""

from __future__ import annotations

from minidnn.memory import policies

# Every policy, with the leanest algorithms, with the fastest, and with the fastest that fit.
PLANNED = [*policies.CHOOSING, *(f"{name}:{algorithms}" for name in policies.POLICIES for algorithms in "fmp")]
# At least one policy of each kind.
KINDS = ["baseline:m", "liveness:m", "liveness:p", "vdnn_all:m", "vdnn_all:p", "vdnn_conv:m", "vdnn_dyn", "layrub:m"]
KINDS += ["baseline_sum:m", "superneurons", "superneurons_memory:p", "sqrt_n:m", "recompute_all:m", "recompute_cheap:m"]
# The policies whose schedules differ most in their use of the streams.
FEW = ["liveness:m", "vdnn_all:m", "vdnn_all:p", "vdnn_conv:m", "vdnn_dyn", "layrub:m"]
