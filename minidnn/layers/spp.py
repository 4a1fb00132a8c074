"""SPP: spatial pyramid pooling (He et al., 2014). Level l pools each image in 2^l x 2^l windows, so that images of any
size give as many numbers; all levels, flattened, follow one another.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate

from minidnn.layers.base import Layer, Shape, ShapeError, Site, images, text
from minidnn.layers.concat import ConcatAttrs
from minidnn.layers.facts import Facts
from minidnn.layers.moving import in_order
from minidnn.layers.pooling import PoolingAttrs, index_of, saved_of
from minidnn.program import Op, Pass, Role, Tensor


class SPP(Layer):
    """Caffe's SPP. A window's side is the image's side divided by 2^l, rounded up. Half of the length by which the
    windows then exceed the image is padding before it. AVE counts padding, as in Pooling."""

    type = "SPP"
    field_name = "spp_param"

    def levels(self, shape: Shape, facts: Facts | None = None) -> list[PoolingAttrs]:
        """The poolings of an image of this shape. Raises ShapeError if a level has more windows than fit."""
        p, result = self.param, []
        saved = facts.pool if facts and p.pool == "MAX" else None
        for level in range(p.pyramid_height):
            windows = 2**level
            kernel = tuple(-(-size // windows) for size in shape[2:])
            pad = tuple((k * windows - size + 1) // 2 for k, size in zip(kernel, shape[2:], strict=True))
            if any(before >= k for before, k in zip(pad, kernel, strict=True)):
                raise ShapeError(
                    f"level {level} of the pyramid has {windows} windows a side, too many for images of "
                    f"{text(shape[2:])}; a pyramid_height of {level} would fit"
                )
            result.append(PoolingAttrs(p.pool, kernel, kernel, pad, saved))
        return result

    def shapes(self, bottoms: Sequence[Shape]) -> list[Shape]:
        n, c, *_ = images(bottoms[0])
        return [(n, c * sum(4**level for level in range(len(self.levels(bottoms[0])))))]

    def forward(self, s: Site) -> Iterable[Op]:
        (x,), (y,) = s.x, s.y
        flat = self.parts(s, y, "flat", Role.ACTIVATION)
        for level, attrs in enumerate(self.levels(x.shape, s.facts if s.train else None)):
            pooled = self.pooled(s, level, "pool", Role.ACTIVATION)
            index = [index_of(s, pooled, attrs, f"index{level}")] if attrs.saved == "index" else []
            flops = pooled.size * attrs.kernel[0] * attrs.kernel[1]
            yield s.op("pooling.forward", [x], [pooled, *index], attrs, flops=flops, name=f"pool{level}")
            pairs, name = in_order(pooled, flat[level]), f"flatten{level}"
            yield s.op("flatten.forward", [pooled], [flat[level]], None, pairs, pooled.size, name)
        if len(flat) > 1:
            yield s.op("concat.forward", flat, [y], begins(flat), flops=y.size, name="concat")

    def backward(self, s: Site) -> Iterable[Op]:
        (x,), (dy,), (dx,) = s.x, s.arriving, s.bottom_gradients
        flat = self.parts(s, dy, "flat.grad", Role.GRADIENT)
        if len(flat) > 1:
            yield s.op("concat.backward", [dy], flat, begins(flat), flops=dy.size, name="backward_concat")
        total: Tensor | None = None
        for level, pooling in enumerate(self.levels(x.shape, s.facts)):
            dpooled, last = self.pooled(s, level, "pool.grad", Role.GRADIENT), level == len(flat) - 1
            part = dx if len(flat) == 1 else Tensor(f"{dx.name}.level{level}", dx.shape, dx.dtype, Role.GRADIENT)
            saved = saved_of(s, x, self.pooled(s, level, "pool", Role.ACTIVATION), pooling, f"index{level}")
            pairs, name = in_order(flat[level], dpooled), f"backward_flatten{level}"
            yield s.op("flatten.backward", [flat[level]], [dpooled], None, pairs, dpooled.size, name)
            flops = dpooled.size * (pooling.kernel[0] * pooling.kernel[1] if pooling.method == "AVE" else 1)
            reads, name = [*saved, dpooled], f"backward_pool{level}"
            yield s.op("pooling.backward", reads, [part], pooling, flops=flops, name=name)
            if total is not None:
                whole = dx if last else Tensor(f"{dx.name}.sum{level}", dx.shape, dx.dtype, Role.GRADIENT)
                pairs, name = [(total, whole), (part, whole)], f"backward_add{level}"
                yield s.op("gradient.add", [total, part], [whole], None, pairs, x.size, name, Pass.BACKWARD)
                part = whole
            total = part

    def pooled(self, s: Site, level: int, name: str, role: Role) -> Tensor:
        """The pooled images of a level, or their gradient."""
        x = s.x[0]
        return Tensor(f"{s.layer}.{name}{level}", (*x.shape[:2], 2**level, 2**level), x.dtype, role)

    def parts(self, s: Site, whole: Tensor, name: str, role: Role) -> list[Tensor]:
        """The flattened levels: the whole itself, if there is one level only."""
        n, c = s.x[0].shape[:2]
        if self.param.pyramid_height == 1:
            return [whole]
        return [
            Tensor(f"{s.layer}.{name}{level}", (n, c * 4**level), whole.dtype, role)
            for level in range(self.param.pyramid_height)
        ]


def begins(parts: Sequence[Tensor]) -> ConcatAttrs:
    """Where each of the flattened levels begins in the top."""
    return ConcatAttrs(1, tuple(accumulate((t.shape[1] for t in parts[:-1]), initial=0)))
