"""SuperNeurons' numbers (Wang et al., PPoPP 2018). Its MB are MiB."""

from __future__ import annotations

TABLE_1 = {  # extra forwards and peak, MB
    "AlexNet (200)": {"speed": (14, 993.018), "memory": (23, 886.23), "cost_aware": (17, 886.23)},
    "ResNet50": {"speed": (84, 455.125), "memory": (118, 401), "cost_aware": (85, 401)},
}

TABLE_3 = {256: (2.56, 0), 384: (3.72, 0), 512: (4.88, 0), 640: (6.03, 0), 896: (8.35, 0), 1024: (9.50, 0.88)}

TABLE_5 = {  # largest batch: Caffe's, SuperNeurons'
    "superneurons_alexnet": ("AlexNet", 768, 1792),
    "vgg16": ("VGG16", 48, 224),
    "inception_v4": ("InceptionV4", 16, 240),
    "resnet50": ("ResNet50", 24, 384),
    "resnet101": ("ResNet101", 16, 256),
    "resnet152": ("ResNet152", 16, 176),
}

DEPTHS = {"Caffe": 148, "MXNet": 480, "Torch": 152, "TensorFlow": 592}  # Table 4: the deepest ResNet of the others
DEEPER = 3.2432  # the abstract: how many times as deep SuperNeurons goes at least
UNITS = 2500  # residual units of the deepest net of the abstract and of section 4, at batch 1
