"""Which policies are tested where every one would take too long."""

from __future__ import annotations

from minidnn.memory import policies

# Every policy, with the leanest and with the fastest algorithms, and with the fastest that fit.
PLANNED = [*policies.CHOOSING, *(f"{name}:{algorithms}" for name in policies.POLICIES for algorithms in "fmp")]
# One of each kind.
KINDS = ["baseline:m", "liveness:m", "liveness:p", "vdnn_all:m", "vdnn_all:p", "vdnn_conv:m", "vdnn_dyn", "layrub:m"]
KINDS += ["baseline_sum:m", "superneurons", "superneurons_memory:p", "sqrt_n:m", "recompute_all:m", "recompute_cheap:m"]
# Those whose schedules differ most in what the streams do: copies or none, with workspaces or without, blocks.
FEW = ["liveness:m", "vdnn_all:m", "vdnn_conv:p", "vdnn_dyn", "layrub:m"]
# Those whose training is compared with that of the baseline on every small net.
TRAINED = ["liveness:m", "liveness:p", "vdnn_all:m", "vdnn_all:p", "vdnn_conv:m", "vdnn_conv:p", "vdnn_dyn"]
TRAINED += ["layrub:m", "layrub_intra:m", "layrub_inter:m", "baseline_caffe:p", "superneurons_memory:p"]
TRAINED += ["superneurons_cost_aware:m", "sqrt_n:p", "recompute_all:m", "recompute_cheap:m"]
# Those that move nothing until a budget makes them.
TIGHT = ["vdnn_pp:m", "vdnn_pp:p", "vdnn_pp_conv:m", "vdnn_pp_alt:m", "accudnn:m", "accudnn:p"]
