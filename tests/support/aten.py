"""Small programs of PyTorch's ops, made by hand as minidnn/torch makes them of modules: no test needs PyTorch for them.

Layers are paths of modules, a module runs several times or around others, all that the caller owns is persistent, and
nothing is an input or an output."""

from __future__ import annotations

from dataclasses import replace

from minidnn.program import Op, Pass, Program, Role, Tensor

KB = 1024


class Tape:
    """Notes the ops of forward. `program()` adds those of backward: each reads what its op of forward read. Sizes are
    in KiB."""

    def __init__(self) -> None:
        self.batch = Tensor("batch", (64 * KB,), "uint8", Role.INPUT)
        self.owned: list[Tensor] = [self.batch]
        self.ops: list[Op] = []
        self.names: dict[str, int] = {}
        self.saved: dict[Op, tuple[Tensor, ...]] = {}
        self.masks: set[Tensor] = set()  # which have no gradient

    def call(self, layer: str, kind: str, *reads: Tensor, size: int = 64, small: int = 0) -> Tensor:
        """The first result of an op; it has `small` more of 1 KiB."""
        name = self._fresh(f"{layer}.{kind.partition('.')[2]}")
        writes = [Tensor(f"{name}.y{i or ''}", ((size if not i else 1) * KB,), "uint8") for i in range(1 + small)]
        self.ops.append(Op(name, kind, layer, Pass.FORWARD, reads, tuple(writes), flops=1000))
        return writes[0]

    def owns(self, name: str, size: int = 16, role: Role = Role.PARAM) -> Tensor:
        """A tensor of the caller's."""
        self.owned.append(Tensor(name, (size * KB,), "uint8", role))
        return self.owned[-1]

    def saves(self, *tensors: Tensor) -> None:
        """These alone are what backward reads of the last op's tensors."""
        self.saved[self.ops[-1]] = tensors

    def over(self, read: Tensor, write: Tensor) -> None:
        """The last op's kernel permits that its result takes the bytes of what it reads."""
        op = self.ops.pop()
        self.ops.append(replace(op, inplace=((read, write),)))

    def linear(self, layer: str, x: Tensor, size: int = 64) -> Tensor:
        weight = self.owns(f"{layer}.weight")
        y = self.call(layer, "inner_product.addmm", weight, x, size=size)
        self.saves(weight, x)
        return y

    def dropout(self, layer: str, x: Tensor) -> Tensor:
        """A mask of half the bytes of what it masks, as if these were of 16 bits."""
        size = x.nbytes // KB
        mask = self.call(layer, "aten.empty_like", x, size=size // 2)
        self.masks.add(mask)
        y = self.call(layer, "aten.mul", x, mask, size=size)
        self.saves(mask)
        return y

    def norm(self, layer: str, x: Tensor) -> Tensor:
        return self.call(layer, "aten.native_layer_norm", x, self.owns(f"{layer}.weight", 1), small=2)

    def change(self, layer: str, t: Tensor) -> None:
        """An op that changes a tensor in place."""
        self.ops.append(Op(self._fresh(f"{layer}.add_"), "aten.add", layer, Pass.FORWARD, (t,), (t,)))

    def program(self, x: Tensor) -> Program:
        """The program whose loss is computed from `x`."""
        loss = Tensor("loss", (KB,), "uint8")
        self.ops.append(Op("loss.softmax", "aten._log_softmax", "loss", Pass.LOSS, (x,), (loss,)))
        ops, gradient = list(self.ops), {loss: Tensor("loss.grad", (KB,), "uint8", Role.GRADIENT)}
        ops.append(Op("loss.ones", "aten.ones_like", "loss", Pass.BACKWARD, (loss,), (gradient[loss],)))
        for op in reversed(self.ops):
            if (dy := gradient.get(op.writes[0])) is not None:
                self._backward(op, dy, gradient, ops)
        weights = [gradient[t] for t in self.owned if t.role is Role.PARAM]
        ops.append(Op("gradients", "caller.gradients", "loss", Pass.UPDATE, (loss, *weights), ()))
        layers = tuple(dict.fromkeys(op.layer for op in self.ops))
        program = Program("TRAIN", tuple(ops), persistent=tuple(self.owned), layers=layers)
        program.check()
        return program

    def _backward(self, op: Op, dy: Tensor, gradient: dict[Tensor, Tensor], ops: list[Op]) -> None:
        saved = self.saved.get(op, () if op.kind == "aten.add" else (*op.reads, *op.writes))
        for t in op.reads:
            if t.role not in (Role.ACTIVATION, Role.PARAM) or t in self.masks:
                continue
            name, role = self._fresh(f"{op.name}.{t.name}.backward"), Role.GRADIENT
            dx = Tensor(f"{name}.dx", t.shape, t.dtype, Role.PARAM_GRADIENT if t.role is Role.PARAM else role)
            ops.append(Op(name, f"{op.kind}_backward", op.layer, Pass.BACKWARD, (dy, *saved), (dx,), flops=1000))
            if t in gradient:
                total = Tensor(f"{name}.sum", t.shape, t.dtype, dx.role)
                ops.append(Op(f"{name}.add", "aten.add", op.layer, Pass.BACKWARD, (gradient[t], dx), (total,)))
                dx = total
            gradient[t] = dx

    def _fresh(self, name: str) -> str:
        number = self.names[name] = self.names.get(name, -1) + 1
        return f"{name}#{number}" if number else name


def transformer(blocks: int = 2, fused: bool = False, head: bool = True) -> Program:
    """Blocks of attention and two inner products, with dropout. fused: attention in one op."""
    tape = Tape()
    x = tape.call("wte", "aten.embedding", tape.batch, tape.owns("wte.weight"))
    for i in range(blocks):
        block = f"h.{i}"
        y = tape.norm(f"{block}.ln_1", x)
        q, k, v = (tape.linear(f"{block}.attn.{name}", y) for name in "qkv")
        if fused:
            y = tape.call(f"{block}.attn", "attention._scaled_dot_product_flash_attention", q, k, v, small=1)
        else:
            scores = tape.call(f"{block}.attn", "matmul.bmm", q, k, size=256)
            scores = tape.call(f"{block}.attn", "aten.div", scores, size=256)
            weights = tape.dropout("drop", tape.call(f"{block}.attn", "aten._softmax", scores, size=256))
            y = tape.call(f"{block}.attn", "matmul.bmm", weights, v)
        x = tape.call(block, "aten.add", x, tape.dropout("drop", tape.linear(f"{block}.attn.out", y)))
        y = tape.linear(f"{block}.mlp.0", tape.norm(f"{block}.ln_2", x), 256)
        y = tape.linear(f"{block}.mlp.2", tape.call(f"{block}.mlp.1", "aten.gelu", y, size=256))
        x = tape.call(block, "aten.add", x, y)
    x = tape.norm("ln_f", x)
    return tape.program(tape.linear("head", x, 128) if head else x)


def classifier() -> Program:
    """Convolutions with BatchNorm, whose number of batches is counted; then two inner products."""
    tape = Tape()
    x = tape.batch
    for i in range(3):
        x = tape.call(f"features.{i}.conv", "convolution.convolution", x, tape.owns(f"features.{i}.conv.weight"))
        tape.change(f"features.{i}.bn", tape.owns(f"features.{i}.bn.num_batches_tracked", 1, Role.STATE))
        x = tape.call(f"features.{i}.bn", "aten.native_batch_norm", x, small=2)
        x = tape.call("relu", "aten.relu", x)
    x = tape.linear("classifier.0", tape.call("pool", "aten.max_pool2d_with_indices", x, size=16, small=1), 8)
    return tape.program(tape.linear("classifier.2", tape.call("relu", "aten.relu", x, size=8), 4))
