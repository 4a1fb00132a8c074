"""Small programs made by hand, for tests of the memory manager that need no layers, arrays or kernels."""

from __future__ import annotations

import random
from dataclasses import replace

from minidnn.costs import Choice, Costs, remembering
from minidnn.program import FORWARD, Algorithm, Op, Pass, Program, Role, Tensor

KB = 1024


class Builder:
    """Builds a program layer by layer; a bottom is named by its layer. `program()` adds the backward pass of any DAG.

    Sizes are in KiB."""

    def __init__(self, data: int = 64) -> None:
        self.data = Tensor("data", (data * KB // 4,), role=Role.INPUT)
        self.out: dict[str, Tensor] = {"data": self.data}
        self.ops: list[Op] = []
        self.weights: dict[str, Tensor] = {}
        self.layers: list[tuple[str, str, list[str]]] = []

    def add(self, name: str, kind: str, *bottoms: str, size: int = 64) -> str:
        x = [self.out[b] for b in bottoms]
        y = Tensor(f"{name}.y", (size * KB // 4,))
        reads, inplace = list(x), ()
        if kind in ("convolution", "inner_product"):
            self.weights[name] = Tensor(f"{name}.w", (size,), role=Role.PARAM)
            reads.append(self.weights[name])
        if kind in ("relu", "eltwise"):
            inplace = ((x[0], y),)
        self.ops.append(
            Op(f"{name}.forward", f"{kind}.forward", name, Pass.FORWARD, tuple(reads), (y,), None, inplace, 1000)
        )
        self.out[name] = y
        self.layers.append((name, kind, list(bottoms)))
        return name

    def program(self, updates: bool = True) -> Program:
        ops, last = list(self.ops), self.layers[-1][0]
        loss = Tensor("loss", (1,))
        ops.append(Op("loss.forward", "loss.forward", "loss", Pass.LOSS, (self.out[last],), (loss,)))
        gradient: dict[str, Tensor] = {}

        def arrive(blob: str, g: Tensor) -> None:
            if blob not in gradient:
                gradient[blob] = g
                return
            total = Tensor(f"{blob}.sum{len(ops)}", g.shape, role=Role.GRADIENT)
            a = gradient[blob]
            ops.append(
                Op(f"{blob}.add{len(ops)}", "gradient.add", blob, Pass.BACKWARD, (a, g), (total,), None, ((a, total),))
            )
            gradient[blob] = total

        first = Tensor(f"{last}.grad", self.out[last].shape, role=Role.GRADIENT)
        ops.append(Op("loss.backward", "loss.backward", "loss", Pass.BACKWARD, (self.out[last],), (first,)))
        gradient[last] = first
        for name, kind, bottoms in reversed(self.layers):
            dy = gradient[name]
            if name in self.weights:
                w = self.weights[name]
                dw = Tensor(f"{name}.w.grad", w.shape, role=Role.PARAM_GRADIENT)
                reads = (self.out[bottoms[0]], dy)
                ops.append(Op(f"{name}.backward_filter", f"{kind}.backward_filter", name, Pass.BACKWARD, reads, (dw,)))
            for k, b in enumerate(bottoms):
                if b == "data":
                    continue
                dx = Tensor(f"{b}.grad.{name}.{k}", self.out[b].shape, role=Role.GRADIENT)
                verb, inplace, reads = "backward", (), (self.out[b], dy)
                if name in self.weights:
                    verb, reads = "backward_data", (self.weights[name], dy)
                if kind == "relu":
                    reads, inplace = (self.out[name], dy), ((dy, dx),)
                if kind in ("eltwise", "permute"):
                    reads = (dy,)
                ops.append(
                    Op(f"{name}.{verb}.{k}", f"{kind}.{verb}", name, Pass.BACKWARD, reads, (dx,), None, inplace, 2000)
                )
                arrive(b, dx)
            if updates and name in self.weights:
                ops.append(Op(f"{name}.update_w", "sgd.update", name, Pass.UPDATE, (w, dw), (w,)))
        persistent = tuple(self.weights.values())
        if not updates:
            persistent += tuple(t for op in ops for t in op.writes if t.role is Role.PARAM_GRADIENT)
        program = Program("TRAIN", tuple(ops), (self.data,), persistent, (loss,), tuple(n for n, _, _ in self.layers))
        program.check()
        return program


def chain(n: int = 4, size: int = 64) -> Program:
    b, x = Builder(size), "data"
    for i in range(n):
        x = b.add(f"conv{i}", "convolution", x, size=size)
        x = b.add(f"relu{i}", "relu", x, size=size)
    x = b.add("pool", "pooling", x, size=size // 4)
    b.add("fc", "inner_product", x, size=4)
    return b.program()


def normed(blocks: int = 3) -> Program:
    """A residual net whose convolutions are followed by cheap ops."""
    b = Builder()
    x = b.add("stem", "convolution", "data")
    for i in range(blocks):
        y = b.add(f"norm{i}", "batch_norm", b.add(f"conv{i}", "convolution", x))
        x = b.add(f"relu{i}", "relu", b.add(f"sum{i}", "eltwise", y, x))
    b.add("fc", "inner_product", b.add("pool", "pooling", x, size=16), size=4)
    return b.program()


def diamond() -> Program:
    b = Builder()
    a = b.add("a", "convolution", "data")
    left, right = b.add("left", "convolution", a), b.add("right", "convolution", a)
    b.add("fc", "inner_product", b.add("join", "eltwise", left, right), size=4)
    return b.program()


def residual(blocks: int = 3) -> Program:
    b = Builder()
    x = b.add("stem", "convolution", "data")
    for i in range(blocks):
        y = b.add(f"relu{i}a", "relu", b.add(f"conv{i}a", "convolution", x))
        y = b.add(f"conv{i}b", "convolution", y)
        x = b.add(f"relu{i}", "relu", b.add(f"sum{i}", "eltwise", y, x))
    b.add("fc", "inner_product", x, size=4)
    return b.program()


def inception(blocks: int = 2) -> Program:
    b = Builder()
    x = b.add("stem", "convolution", "data", size=96)
    for i in range(blocks):
        one = b.add(f"one{i}", "convolution", x, size=32)
        three = b.add(f"three{i}", "convolution", b.add(f"reduce{i}", "convolution", x, size=16), size=48)
        pool = b.add(f"proj{i}", "convolution", b.add(f"pool{i}", "pooling", x, size=96), size=16)
        x = b.add(f"concat{i}", "concat", one, three, pool, size=96)
    b.add("fc", "inner_product", x, size=4)
    return b.program()


def nested() -> Program:
    b = Builder()
    a = b.add("a", "convolution", "data")
    c = b.add("c", "convolution", a)
    d, e = b.add("d", "convolution", c), b.add("e", "pooling", c)
    inner = b.add("inner", "eltwise", d, e)
    f = b.add("f", "relu", inner)
    b.add("fc", "inner_product", b.add("outer", "eltwise", f, a, c), size=4)
    return b.program()


def transformer(blocks: int = 4) -> Program:
    """Equal blocks of attention and a perceptron, each behind a norm and beside a sum: 48 ops a block."""
    b = Builder()
    x = b.add("embed", "inner_product", "data")
    for i in range(blocks):
        n = b.add(f"norm{i}a", "layer_norm", x)
        q, k, v = (b.add(f"{name}{i}", "inner_product", n) for name in "qkv")
        p = b.add(f"softmax{i}", "softmax", b.add(f"scores{i}", "matmul", q, k, size=128), size=128)
        y = b.add(f"attend{i}", "inner_product", b.add(f"values{i}", "matmul", p, v))
        x = b.add(f"sum{i}a", "eltwise", x, y)
        up = b.add(f"up{i}", "inner_product", b.add(f"norm{i}b", "layer_norm", x), size=256)
        y = b.add(f"down{i}", "inner_product", b.add(f"gelu{i}", "gelu", up, size=256))
        x = b.add(f"sum{i}b", "eltwise", x, y)
    b.add("head", "inner_product", b.add("norm", "layer_norm", x), size=128)
    return b.program()


PROGRAMS = {"chain": chain, "diamond": diamond, "residual": residual, "inception": inception, "nested": nested}


def costs(memory: int = 1 << 40, bandwidth: float = 1e9) -> Costs:
    """Two algorithms per convolution: slow without workspace, twice as fast with 40 KiB of it."""

    def choices(op: Op) -> tuple[Choice, ...]:
        if op.kind.startswith("convolution"):
            return Choice(Algorithm("slow"), 2e-4), Choice(Algorithm("fast", 40 * KB), 1e-4)
        return (Choice(Algorithm("only"), 5e-5),)

    return Costs("toy", memory, bandwidth, bandwidth, choices, by_host=lambda op: 8e-5)


def dragging(device: Costs) -> Costs:
    """The device whose algorithms lose much, little or nothing beside copies, each its own."""

    def choices(op: Op) -> tuple[Choice, ...]:
        result = []
        for c in device.choices(op):
            r = random.Random(f"{op.name} {c.algorithm.name}")
            result.append(replace(c, drag=r.choice([(0.0, 0.0), (0.1, 0.2), (0.5, 0.4), (0.5, 0.4)])))
        return tuple(result)

    return replace(device, choices=remembering(choices))


def random_graph(seed: int, layers: int = 12) -> Program:
    """A random DAG: each layer reads one to three earlier blobs. At the end blobs that no layer reads are joined."""
    r = random.Random(seed)
    b, read = Builder(r.choice([16, 64])), {"data"}
    blobs = [b.add("stem", "convolution", "data", size=r.choice([16, 32, 64]))]
    for i in range(layers):
        kind = r.choice(["convolution", "convolution", "relu", "pooling", "eltwise", "concat"])
        count = r.randint(2, 3) if kind in ("eltwise", "concat") else 1
        bottoms = [r.choice(blobs[-4:]) if r.random() < 0.8 else r.choice(blobs) for _ in range(count)]
        size = b.out[bottoms[0]].nbytes // KB if kind in ("relu", "eltwise") else r.choice([16, 32, 48, 64])
        read.update(bottoms)
        blobs.append(b.add(f"{kind}{i}", kind, *bottoms, size=size))
    ends = [x for x in blobs if x not in read]
    b.add("fc", "inner_product", b.add("all", "concat", *ends), size=4)
    return b.program(updates=r.random() < 0.7)


def permuted(seed: int, layers: int = 10) -> Program:
    """A random DAG of convolutions, and of permutations, whose inputs backward does not read."""
    r = random.Random(seed)
    b, read = Builder(64), set()
    blobs = [b.add("stem", "convolution", "data", size=r.choice([32, 64, 96]))]
    for i in range(layers):
        kind = r.choice(["convolution", "permute", "permute"])
        bottoms = r.sample(blobs[-3:], min(len(blobs), r.choice([1, 1, 2]) if kind == "permute" else 1))
        read.update(bottoms)
        blobs.append(b.add(f"{kind}{i}", kind, *bottoms, size=r.choice([16, 32, 64, 128])))
    b.add("fc", "inner_product", b.add("all", "concat", *(x for x in blobs if x not in read)), size=4)
    return b.program()


def wild_graph(seed: int, layers: int = 10) -> Program:
    """A random DAG with features of real programs that `random_graph` lacks.

    These are several inputs, several outputs (one of them a map that backward reads), statistics and gradients that are
    updated in place, masks and means kept for backward, chains of ops in place, and results that no op reads."""
    r = random.Random(seed)
    data, other, label, rate = (
        Tensor(name, (r.choice([16, 64]) * KB // 4 if role is Role.INPUT else 1,), role=role)
        for name, role in (("data", Role.INPUT), ("other", Role.INPUT), ("label", Role.LABEL), ("rate", Role.CONTROL))
    )
    ops: list[Op] = []
    persistent: list[Tensor] = []
    done: list[tuple[str, str, list[Tensor], Tensor, Tensor | None, Tensor | None]] = []  # name, kind, x, y, w, extra
    blobs, read = [data, other], set()

    def op(layer, verb, phase, reads, writes, inplace=()):
        kind = layer.rstrip("0123456789")
        ops.append(Op(f"{layer}.{verb}", f"{kind}.{verb}", layer, phase, tuple(reads), tuple(writes), None, inplace, 1))

    for i in range(layers):
        kind = r.choice(["convolution", "convolution", "relu", "relu", "dropout", "batch_norm", "eltwise", "pooling"])
        count = r.randint(2, 3) if kind == "eltwise" else 1
        x = [r.choice(blobs[-3:]) if r.random() < 0.8 else r.choice(blobs) for _ in range(count)]
        name = f"{kind}{i}"
        same = kind not in ("convolution", "pooling")
        y = Tensor(f"{name}.y", x[0].shape if same else (r.choice([16, 48, 64]) * KB // 4,))
        w = extra = None
        read.update(x)
        if kind == "convolution":
            w = Tensor(f"{name}.w", (r.choice([16, 2048]),), role=Role.PARAM)
            persistent.append(w)
            op(name, "forward", Pass.FORWARD, [*x, w], [y])
        elif kind == "batch_norm":
            extra, state = Tensor(f"{name}.mean", (16,), role=Role.EXTRA), Tensor(f"{name}.s", (16,), role=Role.STATE)
            persistent.append(state)
            op(name, "forward", Pass.FORWARD, x, [y, extra])
            op(name, "statistics", Pass.FORWARD, [extra, state], [state])
        elif kind in ("relu", "dropout") and r.random() < 0.5:
            extra = Tensor(f"{name}.mask", (y.size // 4,), role=Role.EXTRA)
            op(name, "forward", Pass.FORWARD, [*x, rate], [y, extra], ((x[0], y),))
        else:
            op(name, "forward", Pass.FORWARD, x, [y], ((x[0], y),) if same else ())
        blobs.append(y)
        done.append((name, kind, x, y, w, extra))
    seen = r.choice(blobs[2:])  # an output that ops read, too
    ends = [b for b in blobs if b not in read]
    loss, unread = Tensor("loss", (1,)), Tensor("probabilities", (16,), role=Role.EXTRA)
    op("loss", "forward", Pass.LOSS, [*ends, label], [loss, unread])
    gradient: dict[Tensor, Tensor] = {}

    def arrive(b: Tensor, g: Tensor) -> None:
        if b in gradient:
            total = Tensor(f"{b.name}.sum{len(ops)}", b.shape, role=Role.GRADIENT)
            a = gradient[b]
            op(f"sum{len(ops)}", "add", Pass.BACKWARD, [a, g], [total], ((a, total),))
            g = total
        gradient[b] = g

    for b in ends:
        arrive(b, Tensor(f"{b.name}.grad", b.shape, role=Role.GRADIENT))
    op("loss", "backward", Pass.BACKWARD, [*ends, label], [gradient[b] for b in ends])
    late: list[tuple[Tensor, Tensor]] = []
    clipped, rescaled = r.random() < 0.4, r.random() < 0.3
    for name, kind, x, y, w, extra in reversed(done):
        dy = gradient[y]
        if w is not None:
            dw = Tensor(f"{name}.dw", w.shape, role=Role.PARAM_GRADIENT)
            op(name, "backward_filter", Pass.BACKWARD, [x[0], dy], [dw])
            late.append((w, dw))
            if not clipped:
                op(name, "update", Pass.UPDATE, [w, dw, rate], [w])
        if rescaled and kind == "dropout":
            op(name, "rescale", Pass.BACKWARD, [dy], [dy])  # updates in place
        for k, b in enumerate(x):
            if b in (data, other):
                continue
            dx = Tensor(f"{name}.dx{k}", b.shape, role=Role.GRADIENT)
            kept = {"convolution": [w], "relu": [y], "eltwise": [], "dropout": []}.get(kind, [b, y])
            kept = [extra] if extra is not None and kind != "batch_norm" else [*kept, *([extra] if extra else [])]
            op(f"{name}", f"backward_data{k}", Pass.BACKWARD, [*kept, dy], [dx], ((dy, dx),) if kind == "relu" else ())
            arrive(b, dx)
    if clipped and late:
        op("clip", "clip", Pass.UPDATE, [dw for _, dw in late], [dw for _, dw in late])
        for w, dw in late:
            op(w.name.removesuffix(".w"), "update", Pass.UPDATE, [w, dw, rate], [w])
    inputs = tuple(t for t in (data, other, label, rate) if any(t in o.reads for o in ops))
    program = Program("TRAIN", tuple(ops), inputs, tuple(persistent), (loss, seen))
    program.check()
    return program


def forward_only(program: Program) -> Program:
    """The program's forward pass as a program of its own, with the first output alone. It carries what it reads."""
    ops = tuple(op for op in program.ops if op.during in FORWARD and not set(op.reads) & set(op.writes))
    read = {t for op in ops for t in op.reads}
    persistent, inputs = (tuple(t for t in ts if t in read) for ts in (program.persistent, program.inputs))
    made = Program("TEST", ops, inputs, persistent, program.outputs[:1], program.layers)
    made.check()
    return made
