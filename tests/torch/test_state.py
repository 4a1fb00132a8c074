"""An optimizer's state on the host: the same bits, and no bytes on the device between its steps."""

from __future__ import annotations

import pytest

from minidnn.torch.state import HostState

pytestmark = pytest.mark.peer("torch")


def _trained(on_host: bool, name: str = "AdamW"):
    import torch

    torch.manual_seed(0)
    module = torch.nn.Linear(64, 64)
    optimizer = getattr(torch.optim, name)(module.parameters(), lr=1e-2)
    state = HostState(optimizer)
    if on_host:
        state.attach()
    x = torch.randn(8, 64)
    for _ in range(3):
        module(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return module, optimizer, state


def _held(optimizer) -> int:
    return sum(t.untyped_storage().nbytes() for state in optimizer.state.values() for t in state.values())


@pytest.mark.parametrize("name", ["AdamW", "Adagrad"])
def test_a_state_on_the_host_leaves_the_weights_bits_as_they_were(name) -> None:
    import torch

    expected, _, _ = _trained(False, name)
    module, optimizer, _ = _trained(True, name)
    assert torch.equal(module.weight, expected.weight)
    assert _held(optimizer) < 2 * HostState.LEAST


def test_a_state_dict_is_whole_and_detach_brings_the_state_back() -> None:
    import torch

    _, expected, _ = _trained(False)
    _, optimizer, state = _trained(True)
    for one, other in zip(
        expected.state_dict()["state"].values(), optimizer.state_dict()["state"].values(), strict=True
    ):
        assert all(torch.equal(one[k], other[k]) for k in one)
    assert _held(optimizer) < 2 * HostState.LEAST
    optimizer.load_state_dict(expected.state_dict())
    assert _held(optimizer) < 2 * HostState.LEAST
    state.detach()
    assert _held(optimizer) == _held(expected)
