"""Measures scratch: each call alone, on tensors that are made for it and freed before the next one's are made.

Integers are 0, which is a valid index, class and length wherever there is one; other numbers are random, from a
generator of their own, and positive, so that roots and logarithms have values; there are NUMBERS different ones.
PyTorch's generators stay as they were. Arguments of an operator that must come from another one's results, do.

An operator runs with gradients enabled, as in a training step: `mkldnn_rnn_layer` makes its workspace only then. No
tensor requires a gradient, so nothing is recorded.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from minidnn.torch.experimental import without_modes
from minidnn.torch.memory import Followed, Section, following
from minidnn.torch.scratch.calls import Call, Form, new_storages

SEED = 20
LOWEST, HIGHEST = 0.1, 1.0  # of random numbers
NUMBERS = 1 << 16
RANDOM = ("float64", "float32", "float16", "bfloat16")


@dataclass
class Run:
    """A call that has run, or the reason why it did not."""

    call: Call
    memory: Followed | None = None
    results: tuple[int, ...] = ()
    failed: str = ""

    @property
    def nbytes(self) -> int:
        """Beside the results, at the peak, in whatever order threads take it."""
        return max(0, self.memory.bound - sum(self.results)) if self.memory else 0


def measure(calls: Sequence[Call], device: str) -> list[Run]:
    """Run each of these once; on a GPU twice, and the second counts: the first one makes what libraries keep."""
    on_gpu = device != "cpu"
    with _alone(device), following(device) as section:
        generator = _generator(device)
        for call in calls if on_gpu else ():
            _run(call, device, generator, section)
        return [_run(call, device, generator, section) for call in calls]


@contextlib.contextmanager
def _alone(device: str) -> Iterator[None]:
    """What the caller has switched on does not matter: fake tensors, autocast, inference, warnings. Generators stay as
    they are."""
    import torch

    kind = device.partition(":")[0]
    with contextlib.ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        stack.enter_context(without_modes())
        stack.enter_context(torch.autocast(kind, enabled=False))
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.random.fork_rng([device] if kind != "cpu" else []))
        stack.enter_context(torch.enable_grad())
        yield


def _run(call: Call, device: str, generator: Any, section: Section) -> Run:
    result = Run(call)
    with _reason(result):
        args, kwargs, tensors = call.filled(lambda form: tensor(form, device, generator), generator)
        if call.name in FROM_ANOTHER:
            FROM_ANOTHER[call.name](args)
        with section() as memory:
            made = call.target(*args, **kwargs)
        result.results, result.memory = new_storages(made, tensors), memory
    return result


@contextlib.contextmanager
def _reason(run: Run) -> Iterator[None]:
    """An operator may refuse numbers that were made for it, or memory may not suffice."""
    try:
        yield
    except Exception as error:  # of whatever kind an operator raises, which may be a user's own
        lines = str(error).strip().splitlines()
        run.failed = f"{type(error).__name__}{f': {lines[0]}' if lines else ''}"


def tensor(form: Form, device: str, generator: Any) -> Any:
    """A tensor of this form."""
    import torch

    result = torch.empty_strided(form.size, form.stride, dtype=form.dtype, device=device)
    whole = result.as_strided((result.untyped_storage().nbytes() // form.dtype.itemsize,), (1,))
    if form.dtype.is_complex:
        whole = torch.view_as_real(whole)
        whole = whole.flatten()
    if str(whole.dtype).removeprefix("torch.") not in RANDOM:
        whole.view(torch.uint8).zero_()
        return result
    some = torch.empty(min(NUMBERS, len(whole)), dtype=whole.dtype, device=device)
    some.uniform_(LOWEST, HIGHEST, generator=generator)
    if count := len(whole) // NUMBERS:
        whole[: count * NUMBERS].view(count, NUMBERS).copy_(some)
    rest = whole[count * NUMBERS :]
    rest.copy_(some[: len(rest)])
    return result


def _generator(device: str) -> Any:
    import torch

    return torch.Generator(device).manual_seed(SEED)


def _of_lstm(args: list[Any]) -> None:
    """`mkldnn_rnn_layer_backward` reads what its forward operator has written, in a layout of oneDNN's."""
    import torch

    forward = torch.ops.aten.mkldnn_rnn_layer.default
    reverse, mode, hidden, layers, biases, train, bidirectional, sizes, batch_first = args[13:22]
    results = forward(
        *args[:7], reverse, sizes, mode, hidden, layers, biases, bidirectional, batch_first, train
    )  # fmt: skip
    args[7:10], args[22] = results[:3], results[3]


FROM_ANOTHER: dict[str, Callable[[list[Any]], None]] = {"aten.mkldnn_rnn_layer_backward": _of_lstm}
