"""The same net in PyTorch, made layer by layer from minidnn's own graph, so that both train the same net.

It runs in eager mode, channels_last or contiguous, with SGD with momentum. On a GPU it uses cudnn.benchmark and fused
SGD, and copies a page-locked batch in each step. On a CPU it uses PyTorch's defaults, with as many threads as the
caller set.

The net is written as PyTorch's users write it: BatchNorm and the Scale after it are one batch_norm, and ReLUs work in
place. In bfloat16 it runs as users run it: under torch.autocast, with float32 weights. So both sides keep float32
weights, momenta and statistics, and compute products in bfloat16. (Autocast leaves a few functions, such as the powers
within LRN, in float32.) Its batches come from the host in bfloat16, as ours do.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from time import perf_counter
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

from minidnn.layers.relative_position_bias import apart, hidden
from minidnn.nets.graph import Blob, Graph, Node
from minidnn.nets.net import Net
from minidnn.optimizers import SGD
from minidnn.programs.spec import TrainSpec

LAYOUTS = {"contiguous": torch.contiguous_format, "channels_last": torch.channels_last}
# Layers whose backward does not read their output, so that a ReLU may overwrite it.
OVERWRITTEN = ("Convolution", "InnerProduct", "BatchNorm", "Scale", "Concat")


class Unsupported(ValueError):
    """The net or the optimizer has a part that is not implemented in the peer."""


@dataclass(frozen=True)
class Step:
    reads: tuple[Blob, ...]
    writes: Blob
    call: Callable[..., torch.Tensor]


class Peer(torch.nn.Module):
    def __init__(
        self,
        graph: Graph,
        weights: Mapping[str, np.ndarray],
        device: str,
        drop: bool = True,
        format: str = "float32",
        layout: str = "channels_last",
    ) -> None:
        """weights: as `first_weights` returns them. drop: False turns dropout off, to compare numbers. layout: a key of
        LAYOUTS, for images and filters."""
        super().__init__()
        self.place, self.drop, self.layout = device, drop, LAYOUTS[layout]
        self.statistics: list[torch.Tensor] = []  # BatchNorm's running means and variances
        self.half = None if format == "float32" else getattr(torch, format)
        self.multipliers: dict[torch.nn.Parameter, tuple[float, float]] = {}
        self.inputs: list[Blob] = []
        self.steps: list[Step] = []
        self.losses: list[tuple[Blob, Blob, float, int]] = []  # scores, labels, weight, ignored label
        self.sums: list[tuple[Blob, float]] = []  # losses that are steps, and their weights
        self.shared: dict[str, torch.nn.Parameter] = {}  # those of several layers
        self.mode = "eager"  # or "checkpoint", "save_on_cpu"
        merged: set[Node] = set()
        for node in graph.layers:
            if node in merged:
                continue
            if node.layer.inputs:
                self.inputs += node.tops
            elif node.layer.type == "SoftmaxWithLoss":
                self._loss(node)
            elif node.layer.type in ("Accuracy", "Silence"):
                continue
            elif node.layer.type == "BatchNorm":
                merged |= self._batch_norm(node, weights)
            else:
                call = getattr(self, f"_{node.layer.type}", None)
                if call is None:
                    raise Unsupported(f"layer {node.name}: PyTorch has no {node.layer.type} like ours here")
                self.steps.append(Step(node.bottoms, node.tops[0], call(node, weights)))
        ends = [b for pair in self.losses for b in pair[:2]] + [b for b, _ in self.sums]
        self.segments = segments(self.steps, self.inputs, ends)
        self.borders = {b for segment in self.segments for b in segment.reads}  # checkpoint reads them again

    # ---- layers: each method returns a function of the bottoms' values

    def _parameter(self, node: Node, name: str, weights: Mapping[str, np.ndarray], i: int) -> torch.nn.Parameter | None:
        if f"{node.name}/{name}" not in weights:
            return None
        tensor = next(p.tensor for p in node.parameters if p.name == name)
        if tensor in self.shared:
            return self.shared[tensor]
        value = torch.from_numpy(np.array(weights[f"{node.name}/{name}"])).to(self.place)
        if value.dim() == 4:
            value = value.to(memory_format=self.layout)  # `contiguous` would skip filters of one channel
        rate, decay = node.layer.mults(i)
        parameter = torch.nn.Parameter(value, requires_grad=rate != 0)
        self.register_parameter(f"{node.name}/{name}".replace(".", "_"), parameter)
        self.multipliers[parameter] = (rate, decay)
        if tensor:
            self.shared[tensor] = parameter
        return parameter

    def _Convolution(self, node: Node, weights: Mapping[str, np.ndarray]) -> Callable:
        a = node.layer.attrs()  # type: ignore[attr-defined]
        w, b = self._parameter(node, "w", weights, 0), self._parameter(node, "b", weights, 1)
        return lambda x: F.conv2d(x, w, b, a.stride, a.pad, a.dilation, a.group)

    def _InnerProduct(self, node: Node, weights: Mapping[str, np.ndarray]) -> Callable:
        w, b = self._parameter(node, "w", weights, 0), self._parameter(node, "b", weights, 1)
        axis = node.layer.param.axis
        return lambda x: F.linear(torch.flatten(x, axis), w, b)

    def _batch_norm(self, node: Node, weights: Mapping[str, np.ndarray]) -> set[Node]:
        (top,), p = node.tops, node.layer.param
        follower = top.consumers[0] if len(top.consumers) == 1 else None
        joined = follower is not None and follower.layer.type == "Scale"
        gamma = self._parameter(follower, "gamma", weights, 0) if joined else None
        beta = self._parameter(follower, "beta", weights, 1) if joined else None
        channels = node.bottoms[0].tensor.shape[1]
        mean, variance = torch.zeros(channels, device=self.place), torch.ones(channels, device=self.place)
        self.statistics += (mean, variance)
        keep = 1 - p.moving_average_fraction

        def call(x: torch.Tensor) -> torch.Tensor:
            return F.batch_norm(x, mean, variance, gamma, beta, True, keep, p.eps)

        writes = follower.tops[0] if joined and follower else top
        self.steps.append(Step(node.bottoms, writes, call))
        return {follower} if joined and follower else set()

    def _Scale(self, node: Node, weights: Mapping[str, np.ndarray]) -> Callable:
        gamma, beta = self._parameter(node, "gamma", weights, 0), self._parameter(node, "beta", weights, 1)
        shape, axis = node.bottoms[0].tensor.shape, node.layer.param.axis
        shape = (1,) * axis + shape[axis:] if node.layer.param.num_axes < 0 else (1, -1) + (1,) * (len(shape) - 2)
        assert gamma is not None
        if beta is None:
            return lambda x: x * gamma.view(shape)
        return lambda x: torch.addcmul(beta.view(shape), x, gamma.view(shape))

    def _Pooling(self, node: Node, weights: Mapping[str, np.ndarray]) -> Callable:
        a, ceil = node.layer.attrs(node.bottoms[0].tensor.shape), node.layer.param.round_mode == "CEIL"  # type: ignore[attr-defined]
        if a.method == "MAX":
            return lambda x: F.max_pool2d(x, a.kernel, a.stride, a.pad, ceil_mode=ceil)
        return lambda x: F.avg_pool2d(x, a.kernel, a.stride, a.pad, ceil_mode=ceil, count_include_pad=True)

    def _ReLU(self, node: Node, weights: Mapping[str, np.ndarray]) -> Callable:
        slope, (bottom,) = node.layer.param.negative_slope, node.bottoms
        alone = len(bottom.consumers) == 1
        add = bottom.maker.layer.type == "Eltwise" and bottom.maker.layer.param.operation == "SUM"
        inplace = alone and (bottom.maker.layer.type in OVERWRITTEN or add)

        def call(x: torch.Tensor) -> torch.Tensor:
            over = inplace and not (self.mode == "checkpoint" and bottom in self.borders)
            return F.leaky_relu(x, slope, over) if slope else F.relu(x, over)

        return call

    def _LRN(self, node: Node, weights: Mapping[str, np.ndarray]) -> Callable:
        p = node.layer.param
        if p.norm_region != "ACROSS_CHANNELS":
            raise Unsupported(f"layer {node.name}: PyTorch has no LRN within channels")
        return lambda x: F.local_response_norm(x, p.local_size, p.alpha, p.beta, p.k)

    def _Dropout(self, node: Node, weights: Mapping[str, np.ndarray]) -> Callable:
        ratio = node.layer.param.dropout_ratio
        return lambda x: F.dropout(x, ratio) if self.drop else x

    def _Concat(self, node: Node, weights: Mapping[str, np.ndarray]) -> Callable:
        axis = node.layer.param.axis
        return lambda *xs: torch.cat(xs, axis)

    def _Flatten(self, node: Node, weights: Mapping[str, np.ndarray]) -> Callable:
        p = node.layer.param
        return lambda x: torch.flatten(x, p.axis, p.end_axis)

    def _Softmax(self, node: Node, weights: Mapping[str, np.ndarray]) -> Callable:
        axis = node.layer.param.axis
        return lambda x: F.softmax(x, axis)

    def _Eltwise(self, node: Node, weights: Mapping[str, np.ndarray]) -> Callable:
        p = node.layer.param

        def call(*xs: torch.Tensor) -> torch.Tensor:
            found = xs[0] * p.coeff[0] if p.coeff and p.coeff[0] != 1 else xs[0]
            for i, x in enumerate(xs[1:], 1):
                if p.operation == "SUM":
                    found = torch.add(found, x, alpha=p.coeff[i] if p.coeff else 1)
                else:
                    found = found * x if p.operation == "PROD" else torch.maximum(found, x)
            return found

        return call

    # ---- layers of transformers

    def _Embed(self, node: Node, weights: Mapping[str, np.ndarray]) -> Callable:
        w = self._parameter(node, "w", weights, 0)
        assert w is not None and not node.layer.param.bias_term
        return lambda x: F.embedding(x, w)

    def _Bias(self, node: Node, weights: Mapping[str, np.ndarray]) -> Callable:
        (parameter,) = node.parameters
        b = self._parameter(node, parameter.name, weights, 0)
        if node.layer.param.axis + len(parameter.shape) != len(node.bottoms[0].tensor.shape):
            raise Unsupported(f"layer {node.name}: only a Bias of the last axes")
        return lambda x: x + b

    def _LayerNorm(self, node: Node, weights: Mapping[str, np.ndarray]) -> Callable:
        gamma, beta = self._parameter(node, "gamma", weights, 0), self._parameter(node, "beta", weights, 1)
        shape = node.bottoms[0].tensor.shape
        a, rank = node.layer.attrs(shape), len(shape)  # type: ignore[attr-defined]
        own, last = [*range(a.first, a.last)], [*range(rank - a.last + a.first, rank)]
        rows = shape[a.first : a.last]
        if own == last:
            return lambda x: F.layer_norm(x, rows, gamma, beta, a.eps)
        return lambda x: F.layer_norm(x.movedim(own, last), rows, gamma, beta, a.eps).movedim(last, own)

    def _GroupNorm(self, node: Node, weights: Mapping[str, np.ndarray]) -> Callable:
        gamma, beta = self._parameter(node, "gamma", weights, 0), self._parameter(node, "beta", weights, 1)
        a = node.layer.attrs(node.bottoms[0].tensor.shape)  # type: ignore[attr-defined]
        return lambda x: F.group_norm(x, a.groups, gamma, beta, a.eps)

    def _InstanceNorm(self, node: Node, weights: Mapping[str, np.ndarray]) -> Callable:
        gamma, beta = self._parameter(node, "gamma", weights, 0), self._parameter(node, "beta", weights, 1)
        eps = node.layer.param.eps
        return lambda x: F.instance_norm(x, weight=gamma, bias=beta, eps=eps)

    def _StochasticDepth(self, node: Node, weights: Mapping[str, np.ndarray]) -> Callable:
        """As torchvision has it."""
        ratio, together = node.layer.param.drop_ratio, node.layer.param.mode == "BATCH"

        def call(x: torch.Tensor) -> torch.Tensor:
            if not self.drop:
                return x
            shape = (1 if together else len(x), *[1] * (x.dim() - 1))
            return x * torch.empty(shape, dtype=x.dtype, device=x.device).bernoulli_(1 - ratio).div_(1 - ratio)

        return call

    def _ClassToken(self, node: Node, weights: Mapping[str, np.ndarray]) -> Callable:
        token = self._parameter(node, "token", weights, 0)
        assert token is not None
        return lambda x: torch.cat([token.expand(len(x), -1, -1), x], 1)

    def _Slice(self, node: Node, weights: Mapping[str, np.ndarray]) -> Callable:
        if any(reader.layer.type != "Silence" for top in node.tops[1:] for reader in top.consumers):
            raise Unsupported(f"layer {node.name}: only a Slice whose first top alone is used")
        axis, cuts = node.layer.cuts(node.bottoms[0].tensor.shape)  # type: ignore[attr-defined]
        return lambda x: x.narrow(axis, 0, cuts[1])

    def _RMSNorm(self, node: Node, weights: Mapping[str, np.ndarray]) -> Callable:
        p, shape = node.layer.param, node.bottoms[0].tensor.shape
        return lambda x: F.rms_norm(x, shape[p.axis % len(shape) :], eps=p.eps)

    def _GELU(self, node: Node, weights: Mapping[str, np.ndarray]) -> Callable:
        form = node.layer.param.approximate.lower()
        return lambda x: F.gelu(x, approximate=form)

    def _Swish(self, node: Node, weights: Mapping[str, np.ndarray]) -> Callable:
        if node.layer.param.beta != 1:
            raise Unsupported(f"layer {node.name}: PyTorch's SiLU has no beta")
        return lambda x: F.silu(x)

    def _Permute(self, node: Node, weights: Mapping[str, np.ndarray]) -> Callable:
        order = list(node.layer.param.order)
        return lambda x: x.permute(order)

    def _Reshape(self, node: Node, weights: Mapping[str, np.ndarray]) -> Callable:
        shape = node.tops[0].tensor.shape[1:]
        return lambda x: x.reshape(-1, *shape)

    def _Roll(self, node: Node, weights: Mapping[str, np.ndarray]) -> Callable:
        p = node.layer.param
        return lambda x: x.roll(p.shift, p.axis)

    def _RelativePositionBias(self, node: Node, weights: Mapping[str, np.ndarray]) -> Callable:
        a, w = node.layer.attrs(), self._parameter(node, "w", weights, 0)  # type: ignore[attr-defined]
        index = torch.from_numpy(apart(a)).to(self.place)
        mask = a.hidden * torch.from_numpy(hidden(a)).flatten(0, 1)[:, None].to(self.place)
        assert w is not None
        return lambda: (w[index].permute(2, 0, 1) + mask).flatten(0, 1)

    def _Reduction(self, node: Node, weights: Mapping[str, np.ndarray]) -> Callable:
        p = node.layer.param
        if p.operation != "MEAN" or p.coeff != 1:
            raise Unsupported(f"layer {node.name}: only a Reduction to means")
        return lambda x: x.flatten(p.axis).mean(p.axis)

    def _Attention(self, node: Node, weights: Mapping[str, np.ndarray]) -> Callable:
        a = node.layer.attrs([b.tensor.shape for b in node.bottoms])  # type: ignore[attr-defined]
        counts, ratio = (a.heads, a.kv_heads, a.kv_heads), node.layer.param.dropout_ratio
        if a.window is not None or (a.causal and (a.queries != a.keys or a.bias is not None)):
            raise Unsupported(f"layer {node.name}: PyTorch's causal attention has as many queries as keys, no window")

        def call(*xs: torch.Tensor) -> torch.Tensor:
            parts = xs[0].split([n * a.depth for n in counts], 2) if a.packed else xs[:3]
            bias = None if a.bias is None else xs[-1].reshape(*a.bias, a.queries, a.keys)
            if bias is not None and a.bias[0] > 1:
                bias = bias.repeat(len(xs[0]) // a.bias[0], 1, 1, 1)
            q, k, v = (x.unflatten(2, (n, a.depth)).transpose(1, 2) for x, n in zip(parts, counts, strict=True))
            y = F.scaled_dot_product_attention(
                q, k, v, bias, dropout_p=ratio if self.drop else 0.0, is_causal=a.causal, scale=a.scale,
                enable_gqa=a.heads != a.kv_heads,
            )  # fmt: skip
            return y.transpose(1, 2).flatten(2)

        return call

    def _RotaryEmbedding(self, node: Node, weights: Mapping[str, np.ndarray]) -> Callable:
        a = node.layer.attrs(node.bottoms[0].tensor.shape)  # type: ignore[attr-defined]
        if a.interleaved:
            raise Unsupported(f"layer {node.name}: only pairs half a head apart")
        angles = torch.arange(a.tokens)[:, None] * a.base ** (-torch.arange(0, a.depth, 2) / a.depth)
        cos, sin = (f(angles).repeat(1, 2)[:, None].to(self.place) for f in (torch.cos, torch.sin))
        widths = [a.heads * a.depth, a.width - a.heads * a.depth]

        def call(x: torch.Tensor) -> torch.Tensor:
            own, rest = x.split(widths, 2)
            heads = own.unflatten(2, (a.heads, a.depth))
            first, second = heads.chunk(2, 3)
            turned = (heads * cos + torch.cat([-second, first], 3) * sin).flatten(2)
            return torch.cat([turned, rest], 2) if widths[1] else turned

        return call

    def _InnerProductWithLoss(self, node: Node, weights: Mapping[str, np.ndarray]) -> Callable:
        """As users write it: all scores at once."""
        loss, axis = node.layer.spec.loss_param, node.layer.param.axis
        w, b = self._parameter(node, "w", weights, 0), self._parameter(node, "b", weights, 1)
        if loss.mode() != "VALID":
            raise Unsupported(f"layer {node.name}: only losses divided by the count of valid labels")
        ignored = -100 if loss.ignore_label is None else loss.ignore_label
        self.sums.append((node.tops[0], node.layer.loss_weight()))
        assert w is not None

        def call(x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
            scores = F.linear(x.flatten(axis), w, b).flatten(0, -2)
            smoothing = loss.label_smoothing
            return F.cross_entropy(scores, labels.flatten(), ignore_index=ignored, label_smoothing=smoothing)

        return call

    def _loss(self, node: Node) -> None:
        loss, axis = node.layer.spec.loss_param, node.layer.param.axis
        if loss.mode() != "VALID" or loss.label_smoothing or axis != 1:
            raise Unsupported(f"layer {node.name}: only losses along axis 1, divided by the count of valid labels")
        ignored = -100 if loss.ignore_label is None else loss.ignore_label
        self.losses.append((*node.bottoms, node.layer.loss_weight(), ignored))

    # ---- running

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        with torch.autocast(self.place, self.half, enabled=self.half is not None):
            return self._forward(*inputs)

    def _forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        values: dict[Blob, torch.Tensor] = dict(zip(self.inputs, inputs, strict=True))
        with self._saving():
            for segment in self.segments:
                self._run(segment, values)
            total = torch.zeros((), device=self.place)
            for scores, labels, weight, ignored in self.losses:
                found = values[scores]
                wanted = values[labels].reshape(found.shape[0], *found.shape[2:])  # Caffe's labels have any shape
                total = total + weight * F.cross_entropy(found, wanted, ignore_index=ignored)
            for blob, weight in self.sums:
                total = total + weight * values[blob]
        return total

    def _saving(self) -> contextlib.AbstractContextManager[Any]:
        if self.mode != "save_on_cpu":
            return contextlib.nullcontext()
        return torch.autograd.graph.save_on_cpu(pin_memory=self.place == "cuda")

    def _run(self, segment: Segment, values: dict[Blob, torch.Tensor]) -> None:
        def work(*given: torch.Tensor) -> tuple[torch.Tensor, ...]:
            local = dict(zip(segment.reads, given, strict=True))
            for step in segment.steps:
                local[step.writes] = step.call(*(local[b] for b in step.reads))
                for b in segment.dead.get(step, ()):
                    local.pop(b, None)
            return tuple(local[b] for b in segment.writes)

        given = [values[b] for b in segment.reads]
        if self.mode == "checkpoint" and segment is not self.segments[-1]:
            made = checkpoint(work, *given, use_reentrant=False)
        else:
            made = work(*given)
        values.update(zip(segment.writes, made, strict=True))
        for b in segment.last:
            values.pop(b, None)

    def groups(self, rate: float, decay: float) -> list[dict[str, Any]]:
        """Parameter groups for torch.optim.SGD, with the net's own multipliers of learning rate and weight decay."""
        found: dict[tuple[float, float], list[torch.nn.Parameter]] = {}
        for parameter, multipliers in self.multipliers.items():
            if parameter.requires_grad:
                found.setdefault(multipliers, []).append(parameter)
        return [{"params": of, "lr": rate * m, "weight_decay": decay * d} for (m, d), of in found.items()]


@dataclass(frozen=True, eq=False)
class Segment:
    """The steps between two points of a net at which few blobs live. A segment is checkpointed as a whole."""

    steps: tuple[Step, ...]
    reads: tuple[Blob, ...]
    writes: tuple[Blob, ...]  # blobs that later segments, or the losses, read
    dead: dict[Step, tuple[Blob, ...]]  # step -> blobs that are not read after it
    last: tuple[Blob, ...]  # those of `reads` that later segments do not read


def segments(steps: Sequence[Step], inputs: Sequence[Blob], losses: Sequence[Blob]) -> list[Segment]:
    """The net's segments, each of about as many steps as the square root of their number.

    Each cut is where fewest blobs live nearby."""
    last_use = {b: k for k, step in enumerate(steps) for b in step.reads}
    last_use |= {b: len(steps) for b in losses}
    made = {b: -1 for b in inputs} | {step.writes: k for k, step in enumerate(steps)}
    living = [sum(made[b] <= k < last_use.get(b, -1) for b in made if made[b] >= 0) for k in range(len(steps))]
    target = max(1, round(len(steps) ** 0.5))
    cuts, begin = [], 0
    while begin < len(steps):
        near = range(begin + max(0, target - 2), min(begin + 2 * target, len(steps)))
        cut = min(near, key=lambda k: (living[k], abs(k - begin - target)), default=len(steps) - 1) + 1
        if len(steps) - cut < target // 2:
            cut = len(steps)
        cuts.append((begin, cut))
        begin = cut
    found = []
    for begin, end in cuts:
        of = tuple(steps[begin:end])
        own = {step.writes for step in of}
        reads = tuple(dict.fromkeys(b for step in of for b in step.reads if b not in own))
        writes = tuple(step.writes for step in of if last_use.get(step.writes, -1) >= end)
        dead = {
            step: tuple(b for b in dict.fromkeys(step.reads) if last_use[b] == k) for k, step in enumerate(of, begin)
        }
        found.append(Segment(of, reads, writes, dead, tuple(b for b in reads if last_use[b] < end)))
    return found


class Trainer:
    """A Peer with its optimizer and its batch, which is page-locked if the Peer is on a GPU."""

    def __init__(
        self, peer: Peer, batch: Mapping[str, np.ndarray], train: TrainSpec, rate: float, warm: int = 3
    ) -> None:
        self.peer, self.cuda = peer, peer.place == "cuda"
        rule = train.optimizer
        if not isinstance(rule, SGD) or rule.regularization != "L2":
            raise Unsupported(f"the peer trains with SGD and L2 regularization, not {rule}")
        groups = peer.groups(rate, rule.weight_decay)
        self.optimizer = torch.optim.SGD(groups, lr=rate, momentum=rule.momentum, fused=self.cuda or None)
        self.host = [self._pinned(batch[b.name]) for b in peer.inputs]
        self.losses = []
        for _ in range(warm):
            self.losses.append(float(self.step()))
        self.synchronize()
        if self.cuda:  # the memory that cudnn.benchmark took for its trials must not count
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()

    def _pinned(self, value: np.ndarray) -> torch.Tensor:
        value = np.ascontiguousarray(value)
        if value.dtype.name == "bfloat16":  # torch.from_numpy does not know this dtype
            tensor = torch.from_numpy(value.view(np.int16)).view(torch.bfloat16)
        else:
            tensor = torch.from_numpy(value)
        tensor = tensor.long() if value.dtype.kind == "i" else tensor
        if tensor.dim() == 4:
            tensor = tensor.to(memory_format=self.peer.layout)
        return tensor.pin_memory() if self.cuda else tensor

    def step(self) -> torch.Tensor:
        inputs = [x.to(self.peer.place, non_blocking=True) for x in self.host]
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.peer(*inputs)
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def seconds(self, count: int) -> float:
        """Seconds of one step: the mean of `count` steps, between which nothing is waited for."""
        self.synchronize()
        began = perf_counter()
        for _ in range(count):
            self.step()
        self.synchronize()
        return (perf_counter() - began) / count

    def synchronize(self) -> None:
        if self.cuda:
            torch.cuda.synchronize()

    def top(self, most: int = 15) -> list[dict[str, Any]]:
        """The kernels in which a step spends most of its time, slowest first; on a CPU, PyTorch's ops. A list of one
        reason if PyTorch's profiler does not work here."""
        activity, types = torch.profiler.ProfilerActivity, torch.autograd.DeviceType
        wanted = types.CUDA if self.cuda else types.CPU
        try:
            with torch.profiler.profile(activities=[activity.CPU, *([activity.CUDA] if self.cuda else [])]) as seen:
                self.step()
                self.synchronize()
            rows = [
                {
                    "kernel": e.key, "calls": e.count,
                    "seconds": (e.self_device_time_total if self.cuda else e.self_cpu_time_total) / 1e6,
                }
                for e in seen.key_averages() if e.device_type == wanted
            ]  # fmt: skip
        except Exception as error:  # the times beside matter more
            return [{"kernel": f"not known: {error}"[:200], "calls": 0, "seconds": 0.0}]
        return sorted(rows, key=lambda row: -row["seconds"])[:most]

    def cpu_peak(self) -> int:
        """The peak of bytes in one step on the CPU: tensors that live from step to step, plus the highest sum of the
        allocations that PyTorch's profiler reports during the step.

        It counts all memory from PyTorch's allocator: gradients, activations, copies in another layout, oneDNN's
        scratchpads. It does not count memory that a library takes from malloc itself."""
        # The profiler must not see old gradients being freed, since it did not see their allocation.
        self.optimizer.zero_grad(set_to_none=True)
        alive = [*self.peer.parameters(), *self.peer.statistics, *self.host]
        alive += [t for state in self.optimizer.state.values() for t in state.values() if torch.is_tensor(t)]
        cpu = torch.profiler.ProfilerActivity.CPU
        with torch.profiler.profile(activities=[cpu], profile_memory=True) as seen:
            loss = self.step()
        events = [e for e in seen.profiler.kineto_results.events() if e.name() == "[memory]"]  # type: ignore[union-attr]
        changes = [e.nbytes() for e in sorted(events, key=lambda e: e.start_ns())]
        left = _bytes([loss, *(p.grad for p in self.peer.parameters() if p.grad is not None)])
        if sum(changes) != left:
            raise RuntimeError(
                f"the profiler saw {sum(changes)} bytes stay when a step was done, but the gradients and the loss take "
                f"{left}: its memory events cannot be trusted"
            )
        return _bytes(alive) + max(accumulate(changes, initial=0))

    def memory(self) -> dict[str, int]:
        """Peaks in bytes: of PyTorch's tensors, and of the memory that its allocator reserved. 0 on a CPU."""
        if not self.cuda:
            return {"torch_allocated_bytes": 0, "torch_reserved_bytes": 0}
        return {
            "torch_allocated_bytes": torch.cuda.max_memory_allocated(),
            "torch_reserved_bytes": torch.cuda.max_memory_reserved(),
        }


def _bytes(tensors: Sequence[torch.Tensor]) -> int:
    """Bytes of the tensors' storages, each counted once."""
    return sum({s.data_ptr(): s.nbytes() for s in (t.untyped_storage() for t in tensors)}.values())


def first_weights(net: Net) -> dict[str, np.ndarray]:
    """{"<layer>/<blob>": the first value that a Session of this net gives it, in Caffe's shape}"""
    values = net.initial(1, "TRAIN")
    return {
        f"{node.name}/{p.name}": values[p.tensor or f"{node.name}.{p.name}"].reshape(p.blob_shape or p.shape)
        for node in net.graph("TRAIN").layers
        for p in node.parameters
    }


def settle(tf32: bool) -> None:
    """Set PyTorch's switches: cudnn.benchmark on, and TF32 as `tf32` says."""
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = tf32


def forget() -> None:
    """Free the memory that PyTorch holds without need, and reset its peaks."""
    import gc

    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
