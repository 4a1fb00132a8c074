"""Lists of policies, for tests that would take too long with every policy."""

from __future__ import annotations

from minidnn.memory import policies

# Policies that solve integer programs or their relaxations. They take long, and have tests of their own.
SOLVED = ["poet", "checkmate", "monet"]
# The policies of SOME_NETS, each with a small net that it plans.
ABOUT = {"checkpoint_blocks": "inception", "selective": "attention"}
# Every other policy, with the leanest algorithms, with the fastest, and with the fastest that fit.
LEFT_OUT = (*SOLVED, *ABOUT, "layrub_2018_intra", "layrub_2018_inter")  # the last two are parts of layrub_2018
NAMED = [name for name in policies.POLICIES if name not in LEFT_OUT]
CHOOSING = [name for name in policies.CHOOSING if name not in SOLVED]
PLANNED = [*CHOOSING, *(f"{name}:{algorithms}" for name in NAMED for algorithms in "fmp")]
EVERY = [*CHOOSING, *(f"{name}:m" for name in NAMED)]  # with the leanest alone
# At least one policy of each kind.
KINDS = ["baseline:m", "liveness:m", "liveness:p", "vdnn_all:m", "vdnn_all:p", "vdnn_conv:m", "vdnn_dyn", "layrub:m"]
KINDS += ["baseline_sum:m", "superneurons", "superneurons_memory:p", "sqrt_n:m", "recompute_all:m", "recompute_cheap:m"]
# The policies whose schedules differ most in their use of the streams: copies or none, workspaces or none, blocks.
FEW = ["liveness:m", "vdnn_all:m", "vdnn_conv:p", "vdnn_dyn", "layrub:m"]
# The policies whose training is compared with the baseline's on every small net.
TRAINED = ["liveness:m", "liveness:p", "vdnn_all:m", "vdnn_all:p", "vdnn_conv:m", "vdnn_conv:p", "vdnn_dyn"]
TRAINED += [
    "layrub:m",
    "layrub_intra:m",
    "layrub_inter:m",
    "layrub_2018:m",
    "baseline_caffe:p",
    "superneurons_memory:p",
]
TRAINED += ["l2l:m", "zero_offload:m", "superneurons_cost_aware:m", "sqrt_n:p", "recompute_all:m", "recompute_cheap:m"]
# The policies that move nothing until a budget makes them.
TIGHT = ["vdnn_pp:m", "vdnn_pp:p", "vdnn_pp_conv:m", "vdnn_pp_alt:m", "accudnn:m", "accudnn:p", "flashneuron:m"]
TIGHT += ["dtr:m", "capuchin:m", "checkmate:m"]
