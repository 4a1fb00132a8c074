"""Layers of Caffe's forks that are layers of Caffe's in other words: each becomes these, on plain values.

NVCaffe's BatchNorm with scale and bias becomes BatchNorm and Scale. SENet's Axpy, ShuffleNet's ShuffleChannel, ReLU6,
and the depthwise convolutions become what Caffe has for them. The last of the layers keeps the name. (Of a BatchNorm
the first does, which has Caffe's three blobs.)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from minidnn.schema.document import Document, Path_

Layer = dict[str, Any]
AFFINE = ("scale_bias", "scale_filler", "bias_filler")
SCALE = "_scale"  # what the name of the Scale behind a BatchNorm ends with
LEAST_EPS = 1e-5  # NVCaffe's BatchNorm takes no smaller one


def converted(document: Document, layers: Sequence[Any], at: Path_) -> list[Any]:
    """The layers of a net, `at` in the document, in Caffe's words. Places in the file stay, and notes say what was
    done."""
    result: list[Any] = []
    before: list[int] = []
    for i, layer in enumerate(layers):
        rule = CONVERSIONS.get(str(layer.get("type"))) if isinstance(layer, Mapping) else None
        made = rule(dict(layer)) if rule else None
        if made is not None:
            text = ", ".join(each["type"] for each in made)
            document.note((*at, i), f"a fork's {layer['type']}, read as {text}")
        result += [layer] if made is None else made
        before += [i] * (1 if made is None else len(made))
    if len(before) > len(layers):
        document.spread(at, before)
    return result


def _affine(layer: Layer) -> list[Layer] | None:
    """NVCaffe's BatchNorm whose blobs 3 and 4 scale and shift. Either filler turns them on, too."""
    param = layer.get("batch_norm_param")
    if not isinstance(param, Mapping) or not any(field in param for field in AFFINE):
        return None
    rest = {k: v for k, v in param.items() if k not in AFFINE}
    if param.get("scale_bias") is False and len(param.keys() & set(AFFINE)) == 1:
        return [{**layer, "batch_norm_param": rest}]
    if isinstance(eps := rest.get("eps"), int | float):
        rest["eps"] = max(eps, LEAST_EPS)
    norm = {k: v for k, v in layer.items() if k != "param"} | {"batch_norm_param": rest}
    top = layer.get("top", layer.get("name"))
    fillers = {"filler": param.get("scale_filler"), "bias_filler": param.get("bias_filler")}
    scale = {"bias_term": True, **{k: v for k, v in fillers.items() if v is not None}}
    after = {"name": f"{layer.get('name', '')}{SCALE}", "type": "Scale", "bottom": top, "top": top}
    return [norm, {**after, **_rules(layer), "scale_param": scale}]


def _axpy(layer: Layer) -> list[Layer] | None:
    """SENet's Axpy, y = a * x + b with an `a` for each channel of each sample."""
    bottoms = layer.get("bottom")
    if not isinstance(bottoms, list | tuple) or len(bottoms) != 3:
        return None
    name, rules, (a, x, b) = _top(layer), _rules(layer), bottoms
    factor, product = f"{name}_factor", f"{name}_product"
    return [
        {"name": factor, "type": "Flatten", "bottom": a, "top": factor, **rules},
        {"name": product, "type": "Scale", "bottom": [x, factor], "top": product, **rules, "scale_param": {"axis": 0}},
        {**layer, "type": "Eltwise", "bottom": [product, b]},
    ]


def _shuffle(layer: Layer) -> list[Layer] | None:
    """ShuffleNet's ShuffleChannel: channel j of group i becomes channel i of group j."""
    param = layer.get("shuffle_channel_param", {})
    group = param.get("group", 1) if isinstance(param, Mapping) else None
    if not isinstance(group, int) or isinstance(group, bool) or group < 1 or len(_rest(param)) > 0:
        return None
    name, rules = _top(layer), _rules(layer)
    parts, turned = f"{name}_groups", f"{name}_turned"
    into = {"shape": {"dim": [group, -1]}, "axis": 1, "num_axes": 1}
    last = {k: v for k, v in layer.items() if k != "shuffle_channel_param"}
    return [
        {"name": parts, "type": "Reshape", "bottom": layer.get("bottom"), "top": parts, **rules, "reshape_param": into},
        {"name": turned, "type": "Permute", "bottom": parts, "top": turned, **rules,
         "permute_param": {"order": [0, 2, 1]}},
        {**last, "type": "Reshape", "bottom": turned,
         "reshape_param": {"shape": {"dim": -1}, "axis": 1, "num_axes": 2}},
    ]  # fmt: skip


def _depthwise(layer: Layer) -> list[Layer] | None:
    """A convolution with a filter for each channel: as many groups as outputs, unless the file says how many."""
    param = layer.get("convolution_param")
    if not isinstance(param, Mapping) or "num_output" not in param:
        return None
    return [{**layer, "type": "Convolution", "convolution_param": {"group": param["num_output"], **param}}]


def _relu6(layer: Layer) -> list[Layer] | None:
    """ReLU with 6 as its largest value."""
    if any(field.endswith("_param") for field in layer):
        return None
    return [{**layer, "type": "Clip", "clip_param": {"min": 0.0, "max": 6.0}}]


def _top(layer: Layer) -> str:
    """The layer's first top, after which the blobs before it are called."""
    top = layer.get("top", layer.get("name", ""))
    return str(next(iter(top), "")) if isinstance(top, list | tuple) else str(top)


def _rules(layer: Layer) -> Layer:
    """When the layer is part of the net."""
    return {field: layer[field] for field in ("include", "exclude") if field in layer}


def _rest(param: Any) -> set[str]:
    return set(param) - {"group"} if isinstance(param, Mapping) else set()


CONVERSIONS: dict[str, Callable[[Layer], list[Layer] | None]] = {
    "BatchNorm": _affine,
    "Axpy": _axpy,
    "ShuffleChannel": _shuffle,
    "DepthwiseConvolution": _depthwise,
    "ConvolutionDepthwise": _depthwise,
    "ReLU6": _relu6,
}
