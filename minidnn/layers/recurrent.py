"""LSTM and GRU: layers that go through a sequence step by step, and remember.

A layer multiplies all steps' inputs by its input weights at once. Then one op goes through the steps: only the products
of the hidden state depend on the step before. Backward is alike: one op goes back through the steps and leaves the
gradients of the gates' sums, of which products over all steps make those of the weights and of the inputs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from minidnn.layers.base import Layer, Parameter, Shape, ShapeError, Site, text
from minidnn.layers.broadcast import BroadcastAttrs
from minidnn.layers.reshaping import move, other
from minidnn.program import Op, Pass, Role, Tensor

GATES = {"LSTM": 4, "GRU": 3}


@dataclass(frozen=True)
class RecurrentAttrs:
    """What a cell ("LSTM" or "GRU") reads and writes: the names of the op's tensors, in their order.

    z, dz:        (T, N, gates * D), the gates' sums without the hidden state's part, and the gradients of the sums
    w, b:         the weights of the hidden state (gates * D, D), and GRU's bias of it (gates * D,)
    cont:         (T, N), factors of the state before each step
    h_0 c_0, h_T c_T: (1, N, D), the state before the first step and behind the last
    y:            (T, N, D), the hidden state behind each step
    gates:        (T, N, gates * D), the gates behind their functions
    cells:        (T, N, D) in float32, LSTM's c behind each step
    hidden:       (T, N, D), GRU's product for n with its bias, which r multiplies
    dhidden:      (T, N, gates * D), of GRU: the gradients of w h + b; LSTM's are dz
    A name with d before it is the gradient of the one behind the d.
    """

    cell: str
    reads: tuple[str, ...]
    writes: tuple[str, ...]

    def named(self, reads: Sequence[Any], writes: Sequence[Any]) -> dict[str, Any]:
        """The op's tensors, or what stands for them, by name."""
        return dict(zip((*self.reads, *self.writes), (*reads, *writes), strict=True))


class Recurrent(Layer):
    """What LSTM and GRU share: bottoms, tops, and all ops."""

    field_name = "recurrent_param"
    needs = ("num_output",)
    states: ClassVar[tuple[str, ...]] = ()  # what a step hands on
    kept: ClassVar[str] = ""  # what forward keeps beside the gates

    def __init__(self, spec: Any, param: Any, phase: str) -> None:
        super().__init__(spec, param, phase)
        self.still = (1,) if "cont" in self.names(len(spec.bottom)) else ()

    def names(self, count: int) -> tuple[str, ...]:
        """The names of so many bottoms."""
        states = tuple(f"{s}_0" for s in self.states) if self.param.expose_hidden else ()
        return (*("x", "cont", "static")[: max(count - len(states), 0)], *states)

    def _given(self, bottoms: Sequence[Any]) -> dict[str, Any]:
        """The bottoms, or what stands for them, by name."""
        return dict(zip(self.names(len(bottoms)), bottoms, strict=True))

    def shapes(self, bottoms: Sequence[Shape]) -> list[Shape]:
        p, states = self.param, len(self.states) if self.param.expose_hidden else 0
        order = ", ".join(("x", "cont", "x_static", *(f"{s}_0" for s in self.states[:states])))
        if not 1 <= len(bottoms) - states <= 3:
            raise ShapeError(
                f"got {len(bottoms)} bottoms; expected {1 + states} to {3 + states}: {order}, "
                "where x_static, or cont and x_static, may be missing"
            )
        if len(self.spec.top) != 1 + states:
            tops = ", ".join(("h", *(f"{s}_T" for s in self.states[:states])))
            raise ShapeError(f"the number of tops is {len(self.spec.top)}; expected {1 + states}: {tops}")
        if self.type == "GRU" and p.has("hidden_bias"):
            raise ShapeError("a GRU always has a bias of the hidden state: leave out hidden_bias")
        given = self._given(bottoms)
        x = given.pop("x")
        if len(x) < 2:
            raise ShapeError(f"expected a bottom of steps and sequences (T, N, ...), got {text(x)}")
        for name, shape in given.items():
            wanted = {"cont": x[:2], "static": (x[1], *shape[1:])}.get(name, (1, x[1], p.num_output))
            if shape != wanted:
                raise ShapeError(f"x is {text(x)}: expected {name} of {text(wanted)}, got {text(shape)}")
        return [(*x[:2], p.num_output)] + [(1, x[1], p.num_output)] * states

    def parameters(self, bottoms: Sequence[Shape]) -> list[Parameter]:
        p, given = self.param, self._given(bottoms)
        rows, inputs = GATES[self.type] * p.num_output, math.prod(given["x"][2:])
        shapes: dict[str, Shape] = {"w": (rows, inputs), "b": (rows,)}
        if "static" in given:
            shapes["w_static"] = (rows, math.prod(given["static"][1:]))
        shapes["w_hidden"] = (rows, p.num_output)
        if self.type == "GRU" or p.hidden_bias:
            shapes["b_hidden"] = (rows,)
        fillers = {"w": p.weight_filler, "b": p.bias_filler}
        return [
            Parameter(name, shape, fillers[name[0]], *self.mults(i)) for i, (name, shape) in enumerate(shapes.items())
        ]

    def forward(self, s: Site) -> Iterable[Op]:
        given = self._given(s.x)
        x, z = self._rows(s, given["x"]), self._gates(s, "z", Role.EXTRA)
        yield from move(s, given["x"], x)
        product = [x, s.p["w"], s.p["b"]]
        yield s.op("inner_product.forward", product, [z], flops=_flops(x, s.p["w"]), name="forward_input")
        if "static" in given:
            static, w = self._static(s, given["static"]), s.p["w_static"]
            yield from move(s, given["static"], static)
            part, z_x = s.extra("z_static", (static.shape[0], w.shape[0]), z.dtype), z
            yield s.op("inner_product.forward", [static, w], [part], flops=_flops(static, w), name="forward_static")
            z = self._gates(s, "z_all", Role.EXTRA)
            attrs, how = BroadcastAttrs(1), {"name": "add_static", "during": Pass.FORWARD}
            yield s.op("broadcast.add", [z_x, part], [z], attrs, [(z_x, z)], z.size, **how)  # type: ignore[arg-type]
        if self.type == "LSTM" and "b_hidden" in s.p:
            part, z_x = s.p["b_hidden"], z
            z = self._gates(s, "z_biased", Role.EXTRA)
            attrs, how = BroadcastAttrs(2), {"name": "add_bias", "during": Pass.FORWARD}
            yield s.op("broadcast.add", [z_x, part], [z], attrs, [(z_x, z)], z.size, **how)  # type: ignore[arg-type]
        reads = {"z": z, **self._hidden(s), **self._states(given), **_some(given, "cont")}
        writes = dict(zip(("y", *(f"{state}_T" for state in self.states)), s.y, strict=False))
        if s.train:
            writes |= self._kept(s)
        inplace = [(z, writes["gates"])] if s.train else []
        yield self._op(s, "recurrent.forward", reads, writes, inplace)

    def backward(self, s: Site) -> Iterable[Op]:
        given, dx = self._given(s.x), self._given(s.dx)
        tops = zip(("dy", *(f"d{state}_T" for state in self.states)), s.dy, strict=False)
        kept, hidden, states = self._kept(s), self._hidden(s), self._states(given)
        dz = self._gates(s, "dz", Role.GRADIENT)
        reads = {**kept, "w": hidden["w"], **_some(given, "cont"), **{name: t for name, t in tops if t is not None}}
        if self.type == "GRU":  # h before a step is y behind the last one, or h_0; LSTM needs c, which cells are
            reads |= {"y": s.y[0], **states}
        else:
            reads |= _some(states, "c_0")
        writes = {"dz": dz}
        dh = dz
        if self.type == "GRU":
            dh = writes["dhidden"] = self._gates(s, "dhidden", Role.GRADIENT)
        writes |= {f"d{name}": dx[name] for name in states if dx[name] is not None}
        yield self._op(s, "recurrent.backward", reads, writes, [(kept["gates"], dz)])
        yield from self._weights(s, given, dz, dh)
        if dx["x"] is not None:
            rows, w = other(s, dx["x"], self._rows_shape(dx["x"]), "dx.rows", Role.GRADIENT), s.p["w"]
            yield s.op("inner_product.backward_data", [w, dz], [rows], flops=_flops(rows, w))
            yield from move(s, rows, dx["x"], "backward")

    def _weights(self, s: Site, given: dict[str, Tensor], dz: Tensor, dh: Tensor) -> Iterable[Op]:
        """The gradients of the parameters and of x_static: products and sums over all steps.

        dz, dh: the gradients of the gates' sums, and of the hidden state's part of them"""

        def product(x: Tensor, dy: Tensor, of: str, end: str = "") -> Iterable[Op]:
            if (dw := s.dp[of]) is not None:
                name = f"backward_filter{end}"
                yield s.op("inner_product.backward_filter", [x, dy], [dw], flops=_flops(x, dw), name=name)

        def total(dy: Tensor, of: str, end: str = "") -> Iterable[Op]:
            if (db := s.dp.get(of)) is not None:
                yield s.op("inner_product.backward_bias", [dy], [db], flops=dy.size, name=f"backward_bias{end}")

        if s.dp["w_hidden"] is not None:
            before = s.extra("h_before", s.y[0].shape, s.y[0].dtype)
            reads = {"y": s.y[0], **_some(given, "cont", "h_0")}
            yield self._op(s, "recurrent.previous", reads, {"before": before}, during=Pass.BACKWARD)
            yield from product(before, dh, "w_hidden", "_hidden")
        yield from total(dh, "b_hidden", "_hidden")
        yield from product(self._rows(s, given["x"]), dz, "w")
        yield from total(dz, "b")
        d_static = self._given(s.dx).get("static")
        if s.dp.get("w_static") is not None or d_static is not None:
            sums, attrs = s.extra("dz_static", dz.shape[1:], dz.dtype, Role.GRADIENT), BroadcastAttrs(1)
            yield s.op("broadcast.sum", [dz], [sums], attrs, (), dz.size, "backward_static", Pass.BACKWARD)
            yield from product(self._static(s, given["static"]), sums, "w_static", "_static")
            if d_static is not None:
                w = s.p["w_static"]
                rows = other(s, d_static, (dz.shape[1], w.shape[1]), "dstatic.rows", Role.GRADIENT)
                flops = _flops(rows, w)
                yield s.op("inner_product.backward_data", [w, sums], [rows], (), (), flops, "backward_data_static")
                yield from move(s, rows, d_static, "backward")

    def _op(
        self,
        s: Site,
        kind: str,
        reads: Mapping[str, Tensor],
        writes: Mapping[str, Tensor],
        inplace: Iterable[tuple[Tensor, Tensor]] = (),
        during: Pass | None = None,
    ) -> Op:
        attrs = RecurrentAttrs(self.type, tuple(reads), tuple(writes))
        flops = _flops(s.y[0], s.p["w_hidden"]) if "w" in reads else s.y[0].size
        return s.op(kind, reads.values(), writes.values(), attrs, inplace, flops, during=during)

    def _hidden(self, s: Site) -> dict[str, Tensor]:
        """The parameters of the hidden state that the op of all steps reads, as it names them."""
        names = ("w", "b") if self.type == "GRU" else ("w",)
        return {name: s.p[f"{name}_hidden"] for name in names}

    def _states(self, given: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return _some(given, *(f"{state}_0" for state in self.states))

    def _kept(self, s: Site) -> dict[str, Tensor]:
        """What forward keeps for backward."""
        y = s.y[0]
        dtype = "float32" if self.kept == "cells" else y.dtype
        return {"gates": self._gates(s, "gates", Role.EXTRA), self.kept: s.extra(self.kept, y.shape, dtype)}

    def _gates(self, s: Site, name: str, role: Role) -> Tensor:
        """The tensor of that name with a number for each gate."""
        t, n, d = s.y[0].shape
        return s.extra(name, (t, n, GATES[self.type] * d), s.y[0].dtype, role)

    def _rows(self, s: Site, x: Tensor) -> Tensor:
        """x as (T, N, inputs)."""
        return other(s, x, self._rows_shape(x), "x.rows")

    def _rows_shape(self, x: Tensor) -> Shape:
        return (*x.shape[:2], math.prod(x.shape[2:]))

    def _static(self, s: Site, static: Tensor) -> Tensor:
        """x_static as (N, inputs)."""
        return other(s, static, (static.shape[0], math.prod(static.shape[1:])), "static.rows")


def _some(given: Mapping[str, Tensor], *names: str) -> dict[str, Tensor]:
    """Those of the names that are given."""
    return {name: given[name] for name in names if name in given}


def _flops(x: Tensor, w: Tensor) -> int:
    """Of the product of rows with a matrix whose columns are as many as a row's numbers."""
    return 2 * x.size * w.shape[0]


class LSTM(Recurrent):
    """Caffe's LSTM (Hochreiter and Schmidhuber, "Long Short-Term Memory", 1997, with forget gates):

        i f o = logistic, g = tanh, of W_xc x_t + b_c + W_hc (cont_t h_(t-1))
        c_t = cont_t f c_(t-1) + i g
        h_t = o tanh(c_t)

    The bottoms, in this order:

    - x (T, N, ...): T steps of N sequences. The first axis is the step; for (N, T, ...), put a Permute before and after
      the layer.
    - optionally cont (T, N): 0 where a sequence begins, so that the step forgets h and c; 1 where it continues. Without
      cont, no sequence begins within the batch.
    - optionally, after cont, x_static (N, ...): additional inputs, the same for all steps.
    - with `expose_hidden`, h_0 and c_0 (1, N, D), the state before the first step. Otherwise this state is zero for
      each batch; Caffe continues with the state of the previous batch.

    The tops are h (T, N, D), where D is `num_output`; with `expose_hidden` also h_T and c_T (1, N, D). Gradients flow
    into and out of all states; in Caffe, only into h. The parameters are W_xc (4 D, inputs), b_c (4 D), W_xc_static (4
    D, static inputs) and W_hc (4 D, D), with the gates in the order i, f, o, g. torch.nn.LSTM has the order i, f, g, o.
    Its two biases are one here, unless `hidden_bias` adds the second one, b_hidden (4 D), as a separate parameter.

    For backward, forward keeps the gates (T, N, 4 D), in the net's format, and the cells (T, N, D), in float32: 20 T N
    D bytes in float32, in addition to the top. The batch is not the first axis, so the recurrence does not run in parts
    of the batch. The products run in parts of the steps.

    An example with characters, which a Data layer provides as tokens (N, T), and their loss:

        - {name: chars, type: Embed, bottom: data, top: chars,
           embed_param: {num_output: 64, input_dim: 256, weight_filler: {type: xavier}}}
        - {name: steps, type: Permute, bottom: chars, top: steps, permute_param: {order: [1, 0, 2]}}
        - {name: lstm, type: LSTM, bottom: steps, top: lstm,
           recurrent_param: {num_output: 128, weight_filler: {type: xavier}}}
        - {name: back, type: Permute, bottom: lstm, top: back, permute_param: {order: [1, 0, 2]}}
        - {name: loss, type: InnerProductWithLoss, bottom: [back, label], top: loss,
           inner_product_param: {num_output: 256, axis: 2, bias_term: false, weight_filler: {type: xavier}}}
    """

    type = "LSTM"
    bottoms: ClassVar[tuple[int, int | None]] = (1, 5)
    tops: ClassVar[tuple[int, int | None]] = (1, 3)
    states = ("h", "c")
    kept = "cells"


class GRU(Recurrent):
    """Ours, after Cho et al., "Learning Phrase Representations using RNN Encoder-Decoder for Statistical Machine
    Translation" (2014), in the variant of torch.nn.GRU, cuDNN and ONNX's linear_before_reset:

        z r = logistic of W x_t + b + W_h (cont_t h_(t-1)) + b_h
        n = tanh of W x_t + b + r (W_h (cont_t h_(t-1)) + b_h)
        h_t = (1 - z) n + z cont_t h_(t-1)

    Bottoms and tops are those of LSTM, without c: x (T, N, ...), cont (T, N), x_static (N, ...), and with
    `expose_hidden` h_0 (1, N, D). The tops are h (T, N, D), and with `expose_hidden` h_T (1, N, D). The parameters are
    W (3 D, inputs), b (3 D), W_static (3 D, static inputs), W_h (3 D, D) and b_h (3 D), with the gates in the order z,
    r, n, as in ONNX; torch.nn.GRU's is r, z, n.

    For backward, forward keeps the gates (T, N, 3 D) and the product that r multiplies (T, N, D): 16 T N D bytes in
    float32, in addition to the top. Like LSTM, the layer does not run in parts of the batch.
    """

    type = "GRU"
    bottoms: ClassVar[tuple[int, int | None]] = (1, 4)
    tops: ClassVar[tuple[int, int | None]] = (1, 2)
    states = ("h",)
    kept = "hidden"
