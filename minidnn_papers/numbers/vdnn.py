"""vDNN's numbers (Rhu et al., MICRO 2016). Bars were measured in its vector drawings, where one pixel is some 10 to 25
MB. MB are MiB. Our vgg19 is the paper's VGG-16."""

from __future__ import annotations

# Figure 11 (average and maximum, MB) and Figure 14 (performance relative to the oracle)
NETS: dict[tuple[str, int], dict[str, tuple[float, float, float]]] = {
    ("alexnet", 128): {
        "vdnn_all:m": (115, 270, 0.363), "vdnn_all:p": (193, 543, 0.776), "vdnn_conv:m": (232, 309, 0.399),
        "vdnn_conv:p": (309, 582, 0.956), "vdnn_dyn": (387, 660, 1.0), "baseline:m": (776, 776, 0.401),
        "baseline:p": (1127, 1127, 1.0),
    },
    ("overfeat", 128): {
        "vdnn_all:m": (387, 1282, 0.539), "vdnn_all:p": (465, 2333, 0.906), "vdnn_conv:m": (893, 1360, 0.564),
        "vdnn_conv:p": (971, 2411, 0.975), "vdnn_dyn": (1127, 2411, 1.0), "baseline:m": (2800, 2800, 0.570),
        "baseline:p": (4356, 4356, 1.0),
    },
    ("vgg19", 64): {
        "vdnn_all:m": (582, 2450, 0.440), "vdnn_all:p": (971, 2917, 0.843), "vdnn_conv:m": (1671, 2800, 0.476),
        "vdnn_conv:p": (2060, 4279, 1.0), "vdnn_dyn": (3695, 6341, 1.0), "baseline:m": (6146, 6146, 0.470),
        "baseline:p": (8598, 8598, 1.0),
    },
    ("vgg19", 128): {
        "vdnn_all:m": (1088, 4862, 0.396), "vdnn_all:p": (1632, 4862, 0.843), "vdnn_conv:m": (3267, 5563, 0.421),
        "vdnn_conv:p": (3850, 6341, 1.0), "vdnn_dyn": (3850, 6341, 1.0), "baseline:m": (12411, 12411, 0.423),
        "baseline:p": (14474, 14474, 1.0),
    },
    ("vgg19", 256): {
        "vdnn_all:m": (2099, 9610, 0.357), "vdnn_all:p": (2994, 14085, 0.787), "vdnn_conv:m": (6146, 10193, 0.371),
        "vdnn_conv:p": (7197, 17198, 0.917), "vdnn_dyn": (2761, 9610, 0.818), "baseline:m": (22957, 22957, 0.385),
        "baseline:p": (27976, 27976, 1.0),
    },
}  # fmt: skip
# Figure 12: offloaded, MB
OFFLOADED = {
    ("alexnet", 128): (154, 350),
    ("overfeat", 128): (383, 1149),
    ("vgg19", 64): (2535, 4019),
    ("vgg19", 128): (5062, 8062),
    ("vgg19", 256): (10133, 16116),
}
# Figure 4: weights, feature maps, gradient maps, workspace, MB
PARTS = {
    ("alexnet", 128): (231, 366, 193, 328),
    ("overfeat", 128): (559, 1176, 1080, 1581),
    ("vgg19", 64): (559, 4029, 1581, 2448),
    ("vgg19", 128): (None, 8078, 3123, 2738),
    ("vgg19", 256): (None, 16155, 6266, 5012),
}
# Figure 15: GPU under vDNN_dyn, CPU side, baseline, MB, at batch 32
DEEP = {"vgg116": (3001, 16968, 21032), "vgg316": (3859, 46815, 51738), "vgg416": (4268, 61780, 67111)}
FITS = {"vdnn_all:m", "vdnn_dyn"}  # the policies that train vgg19 at batch 256 in 12 GB (section V)

# GoogLeNet at batch 128: Figure 11's average and maximum (None: no bar was measured), and what Figure 12 offloads, MB
GOOGLENET: dict[str, tuple[float | None, float]] = {
    "vdnn_all:m": (193, 1010), "vdnn_conv:p": (1010, 1632), "vdnn_dyn": (1905, 2527), "baseline:m": (None, 4123),
    "baseline:p": (None, 4512),
}  # fmt: skip
GOOGLENET_OFFLOADED = (1361, 2339)
# The first version's abstract (arXiv, February 2016): average memory saved, and the time lost by VGG-16 (256) in 12 GB
SAVED = {("alexnet", 128): 0.61, ("overfeat", 128): 0.83}
LOST = 0.22
# Abstract of the published paper: the same, as far as Figure 11's all(m) bars say so; and section V's loss
SAVED_MOST = {("alexnet", 128): 0.89, ("overfeat", 128): 0.91, ("vdnn_googlenet", 128): 0.95}
LOST_MOST = 0.18
NEEDED = 28  # GB that VGG-16 (256) needs without vDNN, the abstract
# Section V: the plans with which the trials of vDNN_dyn end, where ours end with others
ENDS = {("vgg19", 128): "vdnn_conv", ("vgg19", 256): "vdnn_all"}
