"""From gradients to weights (kernels/update.cu): SGD in one pass over w, dw and h. One launch takes many weights, each
gradient in its own number format."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from minidnn.backends.cuda.multi_tensor import batches, by_pieces, places, wide
from minidnn.backends.cuda.recipe import Launch, Recipe, int32, plain
from minidnn.program import Op

UPDATES = 80  # most weights of a launch


def sgd_update(op: Op) -> list[Recipe]:
    """One recipe for w dw rate objective (h) (clip) -> w (h), in place, for one weight or for several. Nothing is
    changed if the objective or the clipping factor is not finite."""
    alike: dict[tuple, list[Op]] = {}  # members by all that a launch has only once
    for one in op.members:
        a, given = one.attrs, one.reads[2:4] + one.reads[-1:] * one.attrs.clipped
        alike.setdefault((a.momentum, a.scale, a.regularization, a.clipped, given), []).append(one)
    return [plain(*(_sgd(op, part) for ones in alike.values() for part in batches(ones, UPDATES)))]


def _sgd(op: Op, of: Sequence[Op]) -> Launch:
    """The launch for these members of the op."""
    (read, write), a = places(op), of[0].attrs
    rate, objective = (read[t] for t in of[0].reads[2:4])
    clip = read[of[0].reads[-1]] if a.clipped else rate  # without clipping it is not read
    tensors = (
        tuple(write[one.writes[0]] for one in of),
        tuple(read[one.reads[1]] for one in of),
        tuple(write[one.writes[1]] if a.momentum else np.uint64(0) for one in of),
    )
    numbers = (
        tuple(np.float32(one.attrs.lr_mult) for one in of),
        tuple(np.float32(one.attrs.decay) for one in of),
        wide([one.reads[1] for one in of]),
    )
    given = rate, objective, clip, int32(a.clipped), np.float32(a.scale), np.float32(a.momentum)
    lasso = int32(a.regularization == "L1")
    kernel = "sgd_momentum" if a.momentum else "sgd"
    return by_pieces("update", kernel, UPDATES, [one.reads[0] for one in of], tensors, numbers, *given, lasso)


KINDS = {
    "sgd.update": sgd_update,
    "sgd.update_multi_tensor": sgd_update,
}
