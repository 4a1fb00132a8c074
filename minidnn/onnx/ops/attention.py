"""Attention and RotaryEmbedding, of q, k, v and x that are (N, T, heads * d) or (N, heads, T, d)."""

from __future__ import annotations

import numpy as np

from minidnn.layers.base import text
from minidnn.onnx.node import Node, Reader, Refused
from minidnn.onnx.ops.common import bounded, frozen
from minidnn.onnx.ops.elements import total
from minidnn.onnx.ops.moves import part, reshaped, turned
from minidnn.onnx.weight import count


def attention(r: Reader, node: Node) -> None:
    """An Attention. A mask that hides what is behind a query, or far away, becomes fields, any other the bias."""
    if any(node.input(i) for i in range(4, 7)):
        raise Refused("it has keys and values of the past, or lengths of samples")
    if node.get("softcap", 0.0) or node.get("qk_matmul_output_mode", 0) or len([o for o in node.outputs if o]) > 1:
        raise Refused("minidnn has no softcap, and only the first output")
    given = [r.blob(x) for x in node.inputs[:3]]
    shapes, apart = [r.shapes[x] for x in given], len(r.shapes[given[0]]) == 4
    said = [node.get(n) for n in ("q_num_heads", "kv_num_heads", "kv_num_heads")]
    if not apart and None in said:
        raise Refused("inputs of 3 axes need q_num_heads and kv_num_heads")
    counts = [s[1] for s in shapes] if apart else [int(n) for n in said]
    mask, queries, keys = node.input(3), shapes[0][-2], shapes[1][-2]
    known = r.known(mask) if mask else None
    seen = _seen(node, known, queries, keys) if known is not None or not mask else None
    bias = []
    if seen is None:
        bias = [_bias(r, node, known, (shapes[0][0], counts[0], queries, keys))]
        seen = _seen(node, None, queries, keys) or {}
    for i, name in enumerate("qkv") if apart else ():
        given[i] = _joined(r, given[i], f"{node.name}_{name}")
    fields: dict[str, object] = {"num_heads": counts[0], **seen}
    fields |= {"num_kv_heads": counts[1]} if counts[1] != counts[0] else {}
    fields |= {"scale": node.get("scale")} if node.get("scale") is not None else {}
    (y,) = r.layer("Attention", [*given, *bias], name=node.name, attention_param=fields)
    r.gives(node, [_apart(r, y, counts[0], node.name) if apart else y])


def _joined(r: Reader, x: str, name: str) -> str:
    """(N, heads, T, d) as (N, T, heads * d)."""
    x = turned(r, x, [0, 2, 1, 3], name)
    return reshaped(r, x, [*r.shapes[x][:2], count(r.shapes[x][2:])], f"{name}_joined")


def _apart(r: Reader, y: str, heads: int, name: str) -> str:
    """(N, T, heads * d) as (N, heads, T, d)."""
    y = reshaped(r, y, [*r.shapes[y][:2], heads, r.shapes[y][2] // heads], f"{name}_heads")
    return turned(r, y, [0, 2, 1, 3], f"{name}_back")


def _seen(node: Node, mask: np.ndarray | None, queries: int, keys: int) -> dict[str, object] | None:
    """The fields of an Attention whose queries see what those of the node do; None: no fields say what the mask does.
    Raises Refused for what is_causal means of other queries than keys."""
    causal = bool(node.get("is_causal", 0))
    if causal and queries != keys:
        raise Refused(f"is_causal of {queries} queries and {keys} keys: minidnn lets the last meet")
    if mask is None:
        return {"causal": True} if causal else {}
    bounded(queries * keys)
    if mask.dtype.kind == "f":
        if not np.all((mask == 0) | (mask <= np.finfo(np.float32).min)):
            return None
        mask = mask == 0
    if count(mask.shape[:-2]) != 1:
        return None
    seen = np.broadcast_to(mask.reshape(mask.shape[-2:]), (queries, keys))
    away = np.arange(keys - queries, keys, dtype=np.int32)[:, None] - np.arange(keys, dtype=np.int32)
    seen = seen & (away >= 0) if causal else seen
    if seen.all():
        return {}
    behind, near = away >= 0, np.abs(away) <= np.abs(away[seen]).max(initial=0)
    for fields, found in (({"causal": True}, behind), ({}, near), ({"causal": True}, behind & near)):
        if np.array_equal(seen, found):
            window = {} if found is behind else {"window": int(np.abs(away[seen]).max()) + 1}
            return {**fields, **window}
    return None


def _bias(r: Reader, node: Node, known: np.ndarray | None, shape: tuple[int, int, int, int]) -> str:
    """The blob of a mask as a bias: (B, 1 or heads, T, S). Of bools, whether queries see keys, it has the logarithm."""
    samples, heads, *own = shape
    if known is not None:
        if known.dtype.kind == "b":
            known = np.where(known, np.float32(0), np.finfo(np.float32).min)
        full = known.reshape((1,) * (4 - known.ndim) + known.shape)
        lead = tuple(full.shape[:2])
        bounded(count(lead) * count(own))
        numbers = np.ascontiguousarray(np.broadcast_to(full, (*lead, *own)), np.float32)
        dims = {"shape": {"dim": list(numbers.shape)}}
        (blob,) = r.layer("Parameter", [], [numbers], name=f"{node.name}_mask", parameter_param=dims)
    else:
        blob = r.blob(node.input(3))
        given = r.shapes[blob]
        lead = ((1,) * (4 - len(given)) + given)[:2]
        if list(given[-2:]) != own:
            raise Refused(f"its mask has shape {given}: expected {own[0]} queries and {own[1]} keys")
        blob = r.in_shape(blob, (*lead, *own), f"{node.name}_mask")
    if any(n not in (1, whole) for n, whole in zip(lead, (samples, heads), strict=True)):
        raise Refused(f"its mask has one for {text(lead)} samples and heads, of {samples}x{heads}")
    return blob


def rotary(r: Reader, node: Node) -> None:
    """A RotaryEmbedding; products and sums of the parts of each head, where its angles are none of the layer's."""
    x = r.blob(node.inputs[0])
    apart, said = len(r.shapes[x]) == 4, node.get("num_heads", 0)
    if not apart and not said:
        raise Refused("an input of 3 axes needs num_heads")
    heads = r.shapes[x][1] if apart else int(said)
    x = _joined(r, x, node.name) if apart else x
    batch, tokens, width = r.shapes[x]
    depth = width // heads
    size, interleaved = int(node.get("rotary_embedding_dim", 0)) or depth, bool(node.get("interleaved", 0))
    cos, sin = _tables(r, node, (batch, tokens, size // 2))
    base = _base(cos[0], sin[0], depth) if size == depth and len(cos) == 1 else None
    if base is not None:
        fields = {"num_heads": heads, "head_dim": depth, "base": base, "interleaved": interleaved}
        (y,) = r.layer("RotaryEmbedding", [x], name=node.name, rotary_embedding_param=fields)
    else:
        whole = reshaped(r, x, [batch, tokens, heads, depth], f"{node.name}_heads")
        rest = [part(r, whole, 3, size, depth, f"{node.name}_rest")] if size < depth else []
        own = _turned(r, part(r, whole, 3, 0, size, node.name), cos, sin, interleaved, node.name)
        (y,) = r.layer("Concat", [own, *rest], name=node.name, concat_param={"axis": 3}) if rest else (own,)
        y = reshaped(r, y, [batch, tokens, width], f"{node.name}_joined")
    r.gives(node, [_apart(r, y, heads, node.name) if apart else y])


def _tables(r: Reader, node: Node, shape: tuple[int, int, int]) -> list[np.ndarray]:
    """Cosines and sines (N or 1, T, half of what is turned of a head), of the places of the tokens."""
    result = [
        np.asarray(r.constant(node.inputs[i], f"{what} cache"), np.float32) for i, what in enumerate(("cos", "sin"), 1)
    ]
    if node.input(3):
        places = r.constant(node.input(3), "positions")
        result = [table[places] for table in result]
    bounded(count(shape))
    result = [np.broadcast_to(table, shape) for table in result]
    alike = all(np.array_equal(table[:1], one[None]) for table in result for one in table)
    return [table[:1] if alike else table for table in result]


def _base(cos: np.ndarray, sin: np.ndarray, depth: int) -> float | None:
    """The base of a RotaryEmbedding that has these tables (T, depth / 2), as far as float32 tells; None: there is
    none."""
    tokens, half = cos.shape
    angle = float(np.arctan2(sin[1, 1], cos[1, 1])) if tokens > 1 and half > 1 else 0.0
    found = angle ** (-depth / 2) if angle > 0 else 10000.0
    for digits in range(1, 8):
        base = float(f"{found:.{digits}g}")
        angles = np.arange(tokens)[:, None] * base ** (-2 * np.arange(half) / depth)
        room = 1e-6 + 2.0**-22 * angles
        if (np.abs(np.cos(angles) - cos) <= room).all() and (np.abs(np.sin(angles) - sin) <= room).all():
            return base
    return None


def _turned(r: Reader, x: str, cos: np.ndarray, sin: np.ndarray, interleaved: bool, name: str) -> str:
    """x (N, T, heads, size), whose pairs are turned: of the halves of each head, or of neighbours."""
    shape, half, axis = r.shapes[x], r.shapes[x][3] // 2, 4 if interleaved else 3
    pairs = reshaped(r, x, [*shape[:3], half, 2], f"{name}_pairs") if interleaved else x
    long = 1 if interleaved else half
    u, v = (part(r, pairs, axis, i * long, (i + 1) * long, f"{name}_{what}") for i, what in enumerate("uv"))
    tables = [t[:, :, None, :, None] if interleaved else t[:, :, None] for t in (cos, sin)]
    of = {
        what: [frozen(r, "Scale", one, table, f"{name}_{what}_{i}")[0] for i, table in enumerate(tables)]
        for what, one in (("u", u), ("v", v))
    }
    first = total(r, of["u"][0], of["v"][1], f"{name}_first", (1.0, -1.0))
    second = total(r, of["u"][1], of["v"][0], f"{name}_second")
    (y,) = r.layer("Concat", [*first, *second], name=f"{name}_turned", concat_param={"axis": axis})
    return reshaped(r, y, shape, f"{name}_whole")


OPS = {"Attention": attention, "RotaryEmbedding": rotary}
