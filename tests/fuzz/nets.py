"""Small nets at random, as the plain values of their files: their layers fit together, and one step takes no time."""

from __future__ import annotations

from math import prod
from typing import Any

from hypothesis import strategies as st

from minidnn.layers import LAYERS
from minidnn.schema import caffe
from tests.fuzz.pieces import pick

Shape = tuple[int, ...]
Tree = dict[str, Any]

FIELDS = sorted(
    {field for model in vars(caffe).values() if isinstance(model, type) and issubclass(model, caffe.Message)
     for field in model.model_fields}
)  # fmt: skip
TYPES = sorted(LAYERS)
FILLERS = st.sampled_from(["xavier", "msra", "gaussian", "uniform", "positive_unitball"]).map(
    lambda kind: {"type": kind}
)
CLASSES = 5


@st.composite
def nets(draw: Any, deepest: int = 7, sources: bool = True) -> Tree:
    """A net whose layers fit: an input, layers of any types, branches, and mostly a loss.

    sources: whether its input may come from a Data layer"""
    return Writer(draw).net(draw(st.integers(0, deepest)), sources)


class Writer:
    """Writes a net layer by layer and knows each blob's shape."""

    def __init__(self, draw: Any) -> None:
        self.draw = draw
        self.layers: list[Tree] = []
        self.shape: dict[str, Shape] = {}
        self.batch = 1

    def one(self, *choices: Any) -> Any:
        return pick(self.draw, choices)

    def net(self, depth: int, sources: bool) -> Tree:
        self.source(sources)
        for k in range(depth):
            self.layer(f"l{k}")
        last = list(self.shape)[-1]
        ending = self.one("loss", "loss", "loss", "loss", "both", "softmax", "open")
        if ending != "open":
            ip: Tree = {"num_output": CLASSES, "weight_filler": self.draw(FILLERS)}
            self.add("ip", "InnerProduct", [last], (self.batch, CLASSES), inner_product_param=ip)
        if ending == "softmax":
            self.add("prob", "Softmax", ["ip"], (self.batch, CLASSES))
        elif ending != "open":
            self.add("loss", "SoftmaxWithLoss", ["ip", "label"], (1,), **self.loss())
        if ending == "both":
            self.add("accuracy", "Accuracy", ["ip", "label"], (1,), accuracy_param={"top_k": self.one(1, 2)})
            self.layers[-1]["include"] = {"phase": self.one("TEST", "TEST", "TRAIN")}
        head: Tree = {"name": self.one("net", "a", "Net 1", "\u540d")}
        if self.one(False, False, False, True):
            head["force_backward"] = True
        return {**head, "layer": self.layers}

    def loss(self) -> Tree:
        found = self.one(
            {}, {}, {"ignore_label": 0}, {"ignore_label": 255}, {"normalization": "FULL"}, {"normalize": False}
        )
        return {"loss_param": found} if found else {}

    def source(self, sources: bool) -> None:
        self.batch = self.one(1, 2, 3, 4)
        c, h, w = self.one(1, 2, 3, 4), self.one(1, 4, 7, 8), self.one(1, 4, 8, 9)
        if sources and self.one(False, False, True):
            source = self.one("digits", f"synthetic:{c}x{h}x{w}:classes={CLASSES}:count=16")
            c, h, w = (1, 8, 8) if source == "digits" else (c, h, w)
            layer: Tree = {"data_param": {"source": source, "batch_size": self.batch}}
            if self.one(False, True):
                crop = self.one(0, 1, min(h, w))
                layer["transform_param"] = {
                    "scale": self.one(1.0, 0.0625),
                    "mirror": self.one(True, False),
                    "crop_size": crop,
                }
                h, w = (crop, crop) if crop else (h, w)
            self.layers.append({"name": "data", "type": "Data", "top": ["data", "label"], **layer})
        else:
            dims = [self.batch, c, h, w] if self.one(True, True, True, False) else [self.batch, c * h * w]
            c, h, w = (c, h, w) if len(dims) == 4 else (c * h * w, 0, 0)
            self.layers.append(
                {"name": "data", "type": "Input", "top": "data", "input_param": {"shape": {"dim": dims}}}
            )
            shape = {"shape": {"dim": [self.batch]}}
            self.layers.append({"name": "label", "type": "Input", "top": "label", "input_param": shape})
        self.shape["data"] = (self.batch, c, h, w) if h else (self.batch, c)

    def add(
        self, name: str, kind: str, bottoms: list[str], shape: Shape, in_place: bool = False, **message: Any
    ) -> None:
        top = bottoms[0] if in_place else name
        bottom: Any = bottoms[0] if len(bottoms) == 1 else bottoms
        self.layers.append({"name": name, "type": kind, "bottom": bottom, "top": top, **message})
        self.shape.pop(top, None)  # the last blob is the one that was written last
        self.shape[top] = shape

    def layer(self, name: str) -> None:
        blobs = list(self.shape)
        bottom = blobs[-1] if self.one(True, True, False) else self.one(*blobs)
        shape = self.shape[bottom]
        planar = ["Convolution", "Convolution", "Pooling", "LRN"] if len(shape) == 4 else []
        kind = self.one(
            *planar, "InnerProduct", "ReLU", "ReLU", "BatchNorm", "Scale", "Dropout", "Concat", "Eltwise", "Flatten",
            "Softmax",
        )  # fmt: skip
        in_place = bottom != "data" and self.one(True, False)
        write = getattr(self, kind.lower(), None)
        if write is not None:
            write(name, bottom, shape)
        elif kind == "ReLU":
            self.add(name, kind, [bottom], shape, in_place, relu_param={"negative_slope": self.one(0.0, 0.0, 0.1)})
        elif kind == "Scale":
            self.add(name, kind, [bottom], shape, in_place, scale_param={"bias_term": self.one(True, False)})
        elif kind == "Dropout":
            self.add(name, kind, [bottom], shape, in_place, dropout_param={"dropout_ratio": self.one(0.0, 0.3, 0.9)})
        elif kind == "LRN":
            region = self.one("ACROSS_CHANNELS", "WITHIN_CHANNEL")
            self.add(name, kind, [bottom], shape, lrn_param={"local_size": self.one(1, 3, 5), "norm_region": region})
        elif kind == "Flatten":
            self.add(name, kind, [bottom], (shape[0], prod(shape[1:])))
        else:  # BatchNorm, Softmax
            self.add(name, kind, [bottom], shape)

    def convolution(self, name: str, bottom: str, shape: Shape) -> None:
        n, c, h, w = shape
        d = self.one(1, 1, 1, 2)
        k = self.one(*(k for k in (1, 2, 3, 5) if d * (k - 1) < min(h, w)))
        pad, stride, group = (
            self.one(0, 0, 1, 2),
            self.one(1, 1, 1, 2, 3),
            self.one(*(g for g in (1, 1, 2) if c % g == 0)),
        )
        out = group * self.one(1, 2, 3)
        message: Tree = {"num_output": out, "kernel_size": k, "weight_filler": self.draw(FILLERS)}
        message |= {"pad": pad} if pad else {}
        message |= {"stride": stride} if stride > 1 else {}
        message |= {"dilation": d} if d > 1 else {}
        message |= {"group": group} if group > 1 else {}
        message |= {"bias_term": False} if self.one(True, False, False) else {}
        size = ((length + 2 * pad - d * (k - 1) - 1) // stride + 1 for length in (h, w))
        more: Tree = {"param": [{"lr_mult": 0}, {"lr_mult": 2}][: 2 - (not message.get("bias_term", True))]}
        self.add(name, "Convolution", [bottom], (n, out, *size), convolution_param=message, **(more if k == 5 else {}))

    def pooling(self, name: str, bottom: str, shape: Shape) -> None:
        n, c, h, w = shape
        pool = self.one("MAX", "AVE")
        if self.one(False, False, True):
            self.add(name, "Pooling", [bottom], (n, c, 1, 1), pooling_param={"pool": pool, "global_pooling": True})
            return
        k = self.one(*(k for k in (1, 2, 3) if k <= min(h, w)))
        stride, pad, floor = self.one(1, 2, 2), self.one(*range(k)) if k > 1 else 0, self.one(True, False)

        def size(length: int) -> int:
            count = (length + 2 * pad - k) // stride if floor else -((k - length - 2 * pad) // stride)
            return count if pad and count * stride >= length + pad else count + 1

        message = {"pool": pool, "kernel_size": k, "stride": stride, "round_mode": "FLOOR" if floor else "CEIL"}
        message |= {"pad": pad} if pad else {}
        self.add(name, "Pooling", [bottom], (n, c, size(h), size(w)), pooling_param=message)

    def innerproduct(self, name: str, bottom: str, shape: Shape) -> None:
        out = self.one(1, 2, CLASSES, 8)
        message = {"num_output": out, "weight_filler": self.draw(FILLERS), "bias_term": self.one(True, False)}
        self.add(name, "InnerProduct", [bottom], (shape[0], out), inner_product_param=message)

    def concat(self, name: str, bottom: str, shape: Shape) -> None:
        alike = [b for b, s in self.shape.items() if (s[0], *s[2:]) == (shape[0], *shape[2:])]
        other = self.one(*alike)
        self.add(name, "Concat", [bottom, other], (shape[0], shape[1] + self.shape[other][1], *shape[2:]))

    def eltwise(self, name: str, bottom: str, shape: Shape) -> None:
        alike = [b for b, s in self.shape.items() if s == shape]
        operation = self.one("SUM", "SUM", "MAX", "PROD")
        message: Tree = {"operation": operation}
        message |= {"coeff": [1.0, -1.0]} if operation == "SUM" and self.one(True, False) else {}
        self.add(name, "Eltwise", [bottom, self.one(*alike)], shape, eltwise_param=message)
