"""Scratch of convolutions on a CPU, by formula.

oneDNN computes in 32 and 16 bits. Where the images lie channel by channel, it reorders its operands to blocks of
channels, whose number is rounded up, and its result back. Where channels lie innermost, it reorders the weights alone.
For the gradient of the weights in 16 bits, and for that of images with few channels, each thread has an image of its
own.

In 64 bits, for one small image, and with one thread for few images and weights of 1 x 1, PyTorch computes itself: it
unfolds the images into columns, unless they are their own. Groups it computes one after another, each on copies, and
lays their results side by side.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

from minidnn.torch.scratch.calls import Call, Form
from minidnn.torch.scratch.table import copy, dense, numbers, tensor, threads

BLOCK = 16  # channels of a block, in AVX-512
FEW = 4  # of fewer channels, images are read as they lie
SMALL = 20480  # numbers of a single image, up to which PyTorch computes itself
MANY = 16  # images, from which on one thread leaves weights of 1 x 1 to oneDNN
ROOM = 6 << 10  # bytes that a thread has beside the weights, with channels innermost
PARTS = 256  # sums of a depthwise weight's gradient, with channels innermost


@dataclass(frozen=True)
class Convolution:
    """The operands of a call, forward or backward."""

    call: Call

    @cached_property
    def x(self) -> Form:
        return tensor(self.call, "input")

    @cached_property
    def w(self) -> Form:
        return tensor(self.call, "weight")

    @property
    def groups(self) -> int:
        return int(self.call.argument("groups"))

    @cached_property
    def transposed(self) -> bool:
        return bool(self.call.argument("transposed"))

    @property
    def channels_out(self) -> int:
        return self.w.size[1] * self.groups if self.transposed else self.w.size[0]

    @property
    def item(self) -> int:
        return self.x.dtype.itemsize

    @property
    def last(self) -> bool:
        """Whether channels lie innermost: PyTorch asks the images and the weights."""
        return self.x.channels_last or self.w.channels_last

    @property
    def depthwise(self) -> bool:
        return self.x.size[1] == self.groups > 1

    @property
    def unfolds(self) -> bool:
        """Whether PyTorch computes itself."""
        small = self.x.size[0] == 1 and self.groups == 1 and self.x.numel <= SMALL and max(self.w.size[2:]) <= 3
        return self.item == 8 or (small and not self.transposed) or self._with_one_thread

    @property
    def _with_one_thread(self) -> bool:
        steps = (*self._list("stride"), *self._list("dilation"))
        plain = max(self.w.size[-2:]) == 1 and max(steps) == 1
        return self.item == 4 and threads() == 1 and plain and self.x.size[0] < MANY

    @property
    def one_by_one(self) -> bool:
        """Whether the images are their own columns."""
        return max(self.w.size[2:]) == 1 and max(self._list("stride")) == 1 and max(self._list("padding")) == 0

    def _list(self, name: str) -> Sequence[int]:
        """An argument with a number for each dimension of an image."""
        return numbers(self.call, name, len(self.w.size) - 2)

    def y(self) -> int:
        """Numbers of the result's images."""
        sizes = zip(
            self.x.size[2:],
            self.w.size[2:],
            *(self._list(name) for name in ("stride", "padding", "dilation", "output_padding")),
            strict=True,
        )
        places = (
            (n - 1) * step - 2 * pad + spread * (k - 1) + more + 1
            if self.transposed
            else (n + 2 * pad - spread * (k - 1) - 1) // step + 1
            for n, k, step, pad, spread, more in sizes
        )
        return prod(places)

    def images(self, channels: int, places: int) -> int:
        """Bytes of images of so many channels, in blocks."""
        blocked = channels if self.last else -(-channels // BLOCK) * BLOCK
        return self.x.size[0] * blocked * places * self.item

    @cached_property
    def operands(self) -> tuple[int, int, int]:
        """Bytes of images, weights and results in the library's layout."""
        per_group = self.x.size[1] // self.groups, self.channels_out // self.groups
        plain = self.depthwise or (self.groups > 1 and not self.last)
        inner, outer = per_group if plain else tuple(-(-c // BLOCK) * BLOCK for c in per_group)
        few = self.x.size[1] < FEW
        x = dense(self.x) if few else self.images(self.x.size[1], prod(self.x.size[2:]))
        w = self.groups * inner * outer * prod(self.w.size[2:]) * self.item
        return x, w, self.images(self.channels_out, self.y())

    def columns(self, forward: bool) -> int:
        """Bytes of the unfolded images of a group. A transposed convolution unfolds what it gives: in its forward pass
        always, of all images; in its backward pass image by image."""
        if self.one_by_one and not (self.transposed and forward):
            return 0
        places = prod(self.x.size[2:]) if self.transposed else self.y()
        channels = self.channels_out if self.transposed else self.x.size[1]
        images = 1 if self.transposed and not forward else self.x.size[0]
        return images * channels // self.groups * prod(self.w.size[2:]) * places * self.item

    def reordered(self, images: Form) -> int:
        """Bytes of copies of these images, and of the weights, where channels do not lie as the others' do."""
        forms = (images, self.x, self.w) if max(self.w.size[2:]) > 1 else (images, self.x)
        return sum(dense(form) for form in forms if not (form.channels_last if self.last else form.contiguous))

    def image_each(self) -> int:
        """Bytes of an image and of its result, of each thread."""
        image = (self.x.numel // max(1, self.x.size[0]) + self.channels_out * self.y()) * self.item
        return threads() * (image if self.item == 4 else image + image // 4)

    def strided(self) -> int:
        """Bytes of a group's image, of which a 1 x 1 convolution with strides reads some places."""
        strided = max(self.w.size[2:]) == 1 and not self.one_by_one
        return (self.x.size[1] // self.groups * self.y() * self.item + 64) * strided


def forward(call: Call) -> int:
    c, results = Convolution(call), sum(call.results)
    if c.unfolds:
        group, apart = (dense(c.x) // c.groups, results) if c.groups > 1 else (0, 0)
        return max(c.columns(True) + group, apart) + c.reordered(c.x)
    x, w, y = c.operands
    if c.last:
        either = c.w.channels_last or c.depthwise or max(c.w.size[2:]) == 1  # it lies in both orders
        images = (0 if c.x.channels_last else dense(c.x)) + y * c.transposed
        return w + (0 if either else dense(c.w)) + threads() * ROOM + images
    return max(x + w + y + threads() * c.strided(), (3 if c.transposed else 2) * y) - results


def backward(call: Call) -> int:
    c, results = Convolution(call), sum(call.results)
    gradient = tensor(call, "grad_output")
    if c.unfolds:
        group, apart = ((dense(c.x) + dense(gradient)) // c.groups, results) if c.groups > 1 else (0, 0)
        return max(c.columns(False) + group, apart) + c.reordered(gradient)
    x, w, y = c.operands
    mask = call.argument("output_mask")
    wide = dense(c.w) * 4 // c.item  # gradients of weights are summed up in 32 bits
    own = c.image_each() if c.item < 4 or (c.x.size[1] < FEW and mask[0]) else 0
    if c.last:
        return y + w + 3 * wide + (PARTS * wide if c.depthwise else 0) + own
    y += copy(gradient)
    data = dense(c.x) if mask[0] else 0
    sums = max(wide, w) + min(max(wide, w) * max(1, threads() - 1), x + y)
    phases = [data + x + y + sums + own, data + 2 * w]
    if mask[0]:
        phases += [3 * data, x + w + y]
    return max(phases) - results
