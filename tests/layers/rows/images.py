"""Rows of further layers of images: grouped and transposed convolutions, factors and constants of any axes, pyramids,
images in another size."""

from __future__ import annotations

from tests.layers.bench import IMAGE, Row
from tests.layers.rows.spine import images, sizes
from tests.support.peers import F, torch


def over(f, x, axis):
    """f in a shape that broadcasts over x, whose axes it spans from `axis` on."""
    return f.reshape((1,) * axis + tuple(f.shape) + (1,) * (x.ndim - axis - f.ndim))


def pyramid(x, p, height, way):
    """Caffe's windows, by PyTorch's on an image that is padded for each level."""
    found = []
    for level in range(height):
        n = 2**level
        sides = [(-(-size // n), size) for size in x.shape[2:]]
        kernel, pad = [k for k, _ in sides], [(k * n - size + 1) // 2 for k, size in sides]
        after = [k * n - size - before for (k, size), before in zip(sides, pad, strict=True)]
        fill = -torch.inf if way == "MAX" else 0.0
        whole = F.pad(x, (pad[1], max(after[1], 0), pad[0], max(after[0], 0)), value=fill)
        pooled = F.max_pool2d(whole, kernel) if way == "MAX" else F.avg_pool2d(whole, kernel)
        if way == "AVE":  # the divisor counts padding, but at most `pad` places behind the image
            pooled = pooled * (kernel[0] * kernel[1]) / areas(x, kernel, pad, n)
        found.append(pooled[:, :, :n, :n].flatten(1))
    return torch.cat(found, 1)


def areas(x, kernel, pad, n):
    sides = []
    for k, p, size in zip(kernel, pad, x.shape[2:], strict=True):
        starts = torch.arange(n) * k - p
        sides.append(torch.minimum(starts + k, torch.tensor(size + p)) - starts)
    return torch.outer(*sides).double()


def interp(x, size, begin=0, end=0):
    h, w = x.shape[2:]
    x = x[:, :, -begin : h + end, -begin : w + end]
    return F.interpolate(x, size=size, mode="bilinear", align_corners=True)


SPREAD = [
    "convolution.backward_data: w x0 -> spread",
    "broadcast.add: spread b -> y0",
    "convolution.backward_filter: dy0 x0 -> dw",
    "convolution.backward_bias: dy0 -> db",
    "convolution.forward: dy0 w -> dx0",
]

ROWS = {
    "convolution, depthwise": Row(
        "type: Convolution, bottom: a, top: b, convolution_param: {num_output: 4, kernel_size: 3, pad: 1, group: 4, "
        "bias_term: false}",
        [IMAGE], [IMAGE],
        [
            "convolution.forward: x0 w -> y0",
            "convolution.backward_filter: x0 dy0 -> dw",
            "convolution.backward_data: w dy0 -> dx0",
        ],
        lambda x, p: F.conv2d(x, p["w"], None, 1, 1, 1, 4), blobs=[(4, 1, 3, 3)], flops=2 * 2 * 4 * 7 * 5 * 9,
    ),
    "deconvolution": Row(
        "type: Deconvolution, bottom: a, top: b, convolution_param: {num_output: 6, kernel_size: 3, pad: 1, stride: 2}",
        [IMAGE], [(2, 6, 13, 9)], SPREAD,
        lambda x, p: F.conv_transpose2d(x, p["w"], p["b"], 2, 1), blobs=[(4, 6, 3, 3), (6,)],
        flops=2 * 2 * 4 * 7 * 5 * 6 * 9,
    ),
    "deconvolution that enlarges images": Row(
        "type: Deconvolution, bottom: a, top: b, convolution_param: {num_output: 4, group: 4, kernel_size: 4, pad: 1, "
        "stride: 2, bias_term: false, weight_filler: {type: bilinear}}",
        [IMAGE], [(2, 4, 14, 10)],
        [
            "convolution.backward_data: w x0 -> y0",
            "convolution.backward_filter: dy0 x0 -> dw",
            "convolution.forward: dy0 w -> dx0",
        ],
        lambda x, p: F.conv_transpose2d(x, p["w"], None, 2, 1, groups=4), blobs=[(4, 1, 4, 4)],
    ),
    "scale of some axes": Row(
        "type: Scale, bottom: a, top: a, scale_param: {axis: 0, num_axes: 2, bias_term: true}", [IMAGE], [IMAGE],
        [
            "broadcast.multiply: x0 gamma beta -> y0",
            "broadcast.sum_products: x0 dy0 -> dgamma",
            "broadcast.sum: dy0 -> dbeta",
            "broadcast.multiply: dy0 gamma -> dx0",
        ],
        lambda x, p: x * over(p["gamma"], x, 0) + over(p["beta"], x, 0), blobs=[(2, 4), (2, 4)],
    ),
    "scale by another bottom": Row(
        "type: Scale, bottom: [a, f], top: b, scale_param: {axis: 0, bias_term: true}", [IMAGE, (2, 4)], [IMAGE],
        [
            "broadcast.multiply: x0 x1 beta -> y0",
            "broadcast.sum_products: x0 dy0 -> dx1",
            "broadcast.sum: dy0 -> dbeta",
            "broadcast.multiply: dy0 x1 -> dx0",
        ],
        lambda x, f, p: x * over(f, x, 0) + over(p["beta"], x, 0), blobs=[(2, 4)],
    ),
    "scale of one element": Row(
        "type: Scale, bottom: a, top: a, scale_param: {axis: 2, num_axes: 0}", [IMAGE], [IMAGE],
        [
            "broadcast.multiply: x0 gamma -> y0",
            "broadcast.sum_products: x0 dy0 -> dgamma",
            "broadcast.multiply: dy0 gamma -> dx0",
        ],
        lambda x, p: x * p["gamma"], blobs=[(1,)],
    ),
    "bias": Row(
        "type: Bias, bottom: a, top: a", [IMAGE], [IMAGE],
        ["broadcast.add: x0 beta -> y0", "scale.backward_bias: dy0 -> dbeta"],
        lambda x, p: x + over(p["beta"], x, 1), blobs=[(4,)],
    ),
    "bias of all axes but the first": Row(
        "type: Bias, bottom: a, top: a, bias_param: {axis: -3, num_axes: -1}", [IMAGE], [IMAGE],
        ["broadcast.add: x0 beta -> y0", "broadcast.sum: dy0 -> dbeta"],
        lambda x, p: x + over(p["beta"], x, 1), blobs=[(4, 7, 5)],
    ),
    "bias from another bottom": Row(
        "type: Bias, bottom: [a, c], top: b, bias_param: {axis: 2}", [IMAGE, (7, 5)], [IMAGE],
        ["broadcast.add: x0 x1 -> y0", "broadcast.sum: dy0 -> dx1"],
        lambda x, c, p: x + over(c, x, 2),
    ),
    "pyramid": Row(
        "type: SPP, bottom: a, top: b, spp_param: {pyramid_height: 2}", [IMAGE], [(2, 20)],
        [
            "pooling.forward: x0 -> pool0 index0",
            "flatten.forward: pool0 -> flat0",
            "pooling.forward: x0 -> pool1 index1",
            "flatten.forward: pool1 -> flat1",
            "concat.forward: flat0 flat1 -> y0",
            "concat.backward: dy0 -> flat.grad0 flat.grad1",
            "flatten.backward: flat.grad0 -> pool.grad0",
            "pooling.backward: index0 pool.grad0 -> dx0.level0",
            "flatten.backward: flat.grad1 -> pool.grad1",
            "pooling.backward: index1 pool.grad1 -> dx0.level1",
            "gradient.add: dx0.level0 dx0.level1 -> dx0",
        ],
        lambda x, p: pyramid(x, p, 2, "MAX"),
    ),
    "pyramid of one level": Row(
        "type: SPP, bottom: a, top: b, spp_param: {pyramid_height: 1, pool: AVE}", [IMAGE], [(2, 4)],
        [
            "pooling.forward: x0 -> pool0",
            "flatten.forward: pool0 -> y0",
            "flatten.backward: dy0 -> pool.grad0",
            "pooling.backward: pool.grad0 -> dx0",
        ],
        lambda x, p: x.mean((2, 3)),
    ),
    "interp": Row(
        "type: Interp, bottom: a, top: b, interp_param: {zoom_factor: 2, shrink_factor: 3, pad_beg: -1}",
        [(2, 4, 9, 6)], [(2, 4, 5, 3)], ["resize.forward: x0 -> y0", "resize.backward: dy0 -> dx0"],
        lambda x, p: interp(x, (5, 3), -1),
    ),
    "upsample": Row(
        "type: Upsample, bottom: a, top: b, upsample_param: {scale: 3}", [IMAGE], [(2, 4, 21, 15)],
        ["resize.forward: x0 -> y0", "resize.backward: dy0 -> dx0"],
        lambda x, p: F.interpolate(x, scale_factor=3),
    ),
}  # fmt: skip


# ---- any geometry


def deconvolution(random):
    group, c, o = sizes(random, (1, 4), (1, 3), (1, 3))
    k, s, d = (sizes(random, (1, most), (1, most)) for most in (4, 3, 2))
    h, w = sizes(random, (1, 6), (1, 6))
    reach = [t * (n - 1) + e * (f - 1) + 1 for t, n, e, f in zip(s, (h, w), d, k, strict=True)]
    p = [int(random.integers(0, (r + 1) // 2)) for r in reach]
    bias = bool(random.integers(2))
    text = (
        f"type: Deconvolution, bottom: a, top: b, convolution_param: {{num_output: {group * o}, group: {group}, "
        f"kernel_h: {k[0]}, kernel_w: {k[1]}, stride_h: {s[0]}, stride_w: {s[1]}, pad_h: {p[0]}, pad_w: {p[1]}, "
        f"dilation: [{d[0]}, {d[1]}], bias_term: {str(bias).lower()}}}"
    )

    def theirs(x, q):
        return F.conv_transpose2d(x, q["w"], q.get("b"), s, p, 0, group, d)

    return Row(text, [(2, group * c, h, w)], torch=theirs)


def shape_and_axes(random):
    """A shape of 1 to 6 axes, and the first and the number of some of them."""
    shape = sizes(random, *[(1, 4)] * int(random.integers(1, 7)))
    axis = int(random.integers(len(shape)))
    return shape, axis, int(random.integers(1, len(shape) - axis + 1))


def scale(random):
    shape, axis, count = shape_and_axes(random)
    other, bias = bool(random.integers(2)), bool(random.integers(2))
    bottom = "[a, f]" if other else "a"
    text = (
        f"type: Scale, bottom: {bottom}, top: b, scale_param: {{axis: {axis - len(shape)}, num_axes: {count}, "
        f"bias_term: {str(bias).lower()}}}"
    )

    def theirs(x, *rest):
        *f, p = rest
        factor = over(f[0] if f else p["gamma"], x, axis)
        return x * factor + (over(p["beta"], x, axis) if bias else 0)

    return Row(text, [shape, shape[axis : axis + count]][: 2 if other else 1], torch=theirs)


def bias(random):
    shape, axis, count = shape_and_axes(random)
    other = bool(random.integers(2))
    bottom = "[a, c]" if other else "a"
    text = f"type: Bias, bottom: {bottom}, top: b, bias_param: {{axis: {axis}, num_axes: {count}}}"

    def theirs(x, *rest):
        *c, p = rest
        return x + over(c[0] if c else p["beta"], x, axis)

    return Row(text, [shape, shape[axis : axis + count]][: 2 if other else 1], torch=theirs)


def spp(random):
    height, way = int(random.integers(1, 4)), str(random.choice(["MAX", "AVE"]))
    fit = [n for n in range(1, 17) if all((-(-n // b) * b - n + 1) // 2 < -(-n // b) for b in (1, 2, 4)[:height])]
    h, w = (int(n) for n in random.choice(fit, 2))
    text = f"type: SPP, bottom: a, top: b, spp_param: {{pyramid_height: {height}, pool: {way}}}"
    return Row(text, [(2, int(random.integers(1, 5)), h, w)], torch=lambda x, p: pyramid(x, p, height, way))


def resized(random):
    begin, end = (-n for n in sizes(random, (0, 2), (0, 2)))
    n, c, h, w = images(random)
    shape = (n, c, h - begin - end, w - begin - end)
    zoom, shrink = sizes(random, (1, 4), (1, 4))
    fields = [f"zoom_factor: {zoom}", f"shrink_factor: {shrink}"]
    out = (h, w)
    which = int(random.integers(4))
    if which == 3:
        out = sizes(random, (1, 12), (1, 12))
        fields = [f"height: {out[0]}, width: {out[1]}"]
    else:
        fields = fields if which == 2 else [fields[which]]
        out = tuple((s - 1) // shrink + 1 for s in out) if which else out
        out = tuple((s - 1) * zoom + 1 for s in out) if which != 1 else out
    text = f"type: Interp, bottom: a, top: b, interp_param: {{{', '.join(fields)}, pad_beg: {begin}, pad_end: {end}}}"
    return Row(text, [shape], torch=lambda x, p: interp(x, out, begin, end))


def upsample(random):
    s = int(random.integers(1, 5))
    text = f"type: Upsample, bottom: a, top: b, upsample_param: {{scale: {s}}}"
    return Row(text, [images(random)], torch=lambda x, p: F.interpolate(x, scale_factor=s))


RANDOM = {
    "Deconvolution": deconvolution,
    "Scale": scale,
    "Bias": bias,
    "SPP": spp,
    "Interp": resized,
    "Upsample": upsample,
}
