"""Results of fake kernels lie as those of PyTorch's kernels on this CPU do, however their arguments lie."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

pytestmark = pytest.mark.peer("torch")

ORDERS = {
    "plain": lambda t: t,
    "transposed": lambda t: t.transpose(-1, -2).contiguous().transpose(-1, -2),
    "swapped": lambda t: t.transpose(0, 1).contiguous().transpose(0, 1),
    "channels last": lambda t: t.movedim(1, -1).contiguous().movedim(-1, 1),
    "expanded": lambda t: t[:1].expand_as(t),
    "cut": lambda t: t.repeat(1, 2, *[1] * (t.dim() - 2))[:, : t.shape[1]],
}


def _elements(gradient: Any, x: Any, aten: Any) -> list[tuple[Any, ...]]:
    import torch

    one, three = torch.ones(8), torch.ones(4, 6, 1)
    return [
        (aten.native_layer_norm_backward, gradient, x, [8], three, three, one, one, [True] * 3),
        (aten._log_softmax_backward_data, gradient, x, -1, torch.float32),
        (aten._softmax_backward_data, gradient, x, -1, torch.float32),
        (aten.hardtanh_backward, gradient, x, -1, 1),
        (aten.hardsigmoid_backward, gradient, x),
        (aten.hardswish_backward, gradient, x),
        (aten.elu_backward, gradient, 1.0, 1.0, 1.0, False, x),
        (aten.gelu_backward, gradient, x),
        (aten.silu_backward, gradient, x),
        (aten.threshold_backward, gradient, x, 0),
        (aten.native_dropout, x, 0.5, True),
        (aten.mul, gradient, x),
    ]


def _images(gradient: Any, x: Any, aten: Any) -> list[tuple[Any, ...]]:
    import torch

    one, weights, ways = torch.ones(8), torch.ones(8, 8, 3, 3), ([1, 1], [1, 1], [1, 1], False, [0, 0], 1)
    return [
        (aten.native_batch_norm, x, one, one, one, one, True, 0.1, 1e-5),
        (aten.native_batch_norm_backward, gradient, x, one, one, one, one, one, True, 1e-5, [True] * 3),
        (aten.convolution, x, weights, one, *ways),
        (aten.convolution_backward, gradient, x, weights, [8], *ways, [True] * 3),
        (aten.max_pool2d_with_indices, x, [2, 2], [2, 2]),
        (aten.avg_pool2d, x, [2, 2], [2, 2]),
        (aten._adaptive_avg_pool2d, x, [1, 1]),
        (aten.upsample_nearest2d, x, [12, 8]),
    ]


@pytest.mark.parametrize(("given", "of"), list(product(ORDERS, ORDERS)))
def test_results_lie_as_predicted(given, of):
    import torch

    from minidnn.torch.experimental import fake_mode
    from minidnn.torch.layouts import corrected

    def tensors(*shape: int) -> tuple[Any, Any]:
        return ORDERS[given](torch.rand(*shape)), ORDERS[of](torch.rand(*shape))

    aten, mode = torch.ops.aten, fake_mode(corrected, allow_non_fake_inputs=True)
    calls = [*_elements(*tensors(4, 6, 8), aten), *_images(*tensors(2, 8, 6, 4), aten)]
    for call, *args in calls:
        with mode:
            fakes = [mode.from_tensor(x) if isinstance(x, torch.Tensor) else x for x in args]
            predicted = call(*fakes)
        real = call(*args)
        for one, other in zip(_several(predicted), _several(real), strict=True):
            assert (one is None) == (other is None)
            assert one is None or one.stride() == other.stride(), f"{call}: {one.stride()}, {other.stride()}"


def _several(result: Any) -> Any:
    return result if isinstance(result, tuple | list) else [result]
