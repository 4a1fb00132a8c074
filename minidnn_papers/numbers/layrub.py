"""Layrub's numbers (Jin et al., TACO 15(3), 2018). Bars were measured in raster pictures, to 10 MB (bars in GB: to 10
GB/1024). MB are MiB."""

from __future__ import annotations

GB = 1024  # MiB, where the paper's scale is in GB

# Figures 9 and 11: MB of data and diff under Caffe, intra, inter, hybrid
RESNETS = {
    ("resnet34", 32): (1740, 1415, 404, 284),
    ("resnet50", 32): (5374, 4341, 826, 759.5),
    ("resnet101", 32): (8.08 * GB, 6.47 * GB, 826, 759.5),
    ("resnet152", 32): (11.61 * GB, 9.31 * GB, 826, 759.5),
    ("resnet1001", 32): (67.2 * GB, 46.8 * GB, 826, 759.5),
}
OTHERS = {
    ("lenet", 5000): (720, 367, 548, 329),
    ("cifar10_quick", 5000): (2207, 1143, 1551, 940),
    ("caffenet", 256): (1890, 1400, 774, 631),
    ("vgg16", 32): (3700, 2267, 1656, 970),
    ("googlenet", 32): (2131, 1603, 540, 563),
    ("wrn_28_10", 128): (4756, 3662, 713, 653),
}
RECURRENT = {"LSTM-RNN (64, 512)": (759, 374, 631, 351), "LSTM-CNN (384, 16)": (6098, 3866, 2433, 2086)}
# Figure 10: the same of WRN-8-k
WIDE = {
    10: (360, 233, 205, 149), 16: (461, 294, 300, 211), 32: (718, 456, 456, 372), 64: (1230, 773, 1069, 690),
    128: (2255, 1213, 2094, 1130), 256: (3759, 1927, 3386, 1821),
}  # fmt: skip
# Figure 12: MB of the whole process under Layrub, by nvidia-smi
WHOLE = {
    ("caffenet", 256): 2264, ("vgg16", 32): 2358, ("googlenet", 32): 1506, ("resnet34", 32): 1482,
    ("resnet50", 32): 2047, ("wrn_28_10", 128): 1669,
}  # fmt: skip
# Figure 12: the same of TensorFlow and of MXNet with memonger. GeePS's are left out: no policy here follows it.
TENSORFLOW = {
    ("caffenet", 256): 4260, ("vgg16", 32): 4387, ("googlenet", 32): 2277, ("resnet34", 32): 2588,
    ("resnet50", 32): 4252, ("wrn_28_10", 128): 5861,
}  # fmt: skip
MEMONGER = {
    ("caffenet", 256): 2480, ("vgg16", 32): 2440, ("googlenet", 32): 2318, ("resnet34", 32): 1425,
    ("resnet50", 32): 2183, ("resnet1001", 32): 10093,
}  # fmt: skip
# Table 5: seconds of 20 iterations under Caffe and Layrub
SECONDS = {
    ("lenet", 5000): (2.148, 2.342), ("cifar10_quick", 5000): (7.223, 8.178), ("caffenet", 256): (20.808, 25.355),
    ("vgg16", 32): (91.815, 110.759), ("googlenet", 32): (9.726, 12.392), ("resnet34", 32): (37.387, 46.928),
    ("resnet50", 32): (55.131, 86.425), ("wrn_28_10", 128): (79.397, 94.021),
}  # fmt: skip
# Figure 13: performance relative to Caffe
RELATIVE = {("alexnet", 128): 0.83, ("googlenet", 128): 0.78, ("vgg16", 64): 0.85}
# Figure 13: the same of vDNN (m) and (p), which are vDNN's own figures of its Titan X
VDNN = {("alexnet", 128): (0.40, 0.75), ("vdnn_googlenet", 128): (0.50, 0.62), ("vgg19", 64): (0.45, 0.82)}
# Table 6: MB of MXNet with memonger on the K40M
MXNET = {34: 1431, 50: 2195, 1001: 10104, 1172: 11455}
# Table 6: MB of training at batch 32 on the K40M, Caffe and Layrub
RUNTIME = {
    34: (4430, 1257), 50: (11425, 1805), 302: (None, 3448), 695: (None, 5968), 1001: (None, 7901),
    1172: (None, 9022), 1304: (None, 9872), 1517: (None, 11239),
}  # fmt: skip
UNDEFINED = (302, 695)  # the authors' files have none of these depths
# Table 7: largest batches
LARGEST = {
    "caffenet": 2100, "vgg16": 240, "resnet34": 416, "resnet50": 272, "resnet56": 5000, "wrn_28_10": 1376,
}  # fmt: skip

# Table 8: speed of two nodes over one, linked by Ethernet of 1 Gb/s
NODES = {("caffenet", 256): 1.98, ("resnet50", 32): 1.98, ("resnet1001", 32): 1.97}

# Abstract: the average saving and time of Layrub over Caffe; the largest saving, that of ResNet-1001 (section 5.2)
AVERAGE_SAVING, LARGEST_SAVING, AVERAGE_TIME = 0.582, 0.989, 1.241
