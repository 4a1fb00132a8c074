"""A step as two CUDA graphs, on the imitation of torch.cuda. No GPU has run it yet."""

from __future__ import annotations

import copy

import pytest

from tests.torch.test_cuda_runtime import RINGED, losses_and_gradients, started

pytestmark = pytest.mark.peer("torch")


@pytest.mark.parametrize(
    ("net", "policy"), [("gpt", "layrub"), ("cnn", "l2l"), pytest.param("cnn", "liveness", marks=pytest.mark.extended)]
)
def test_replays_leave_what_eager_mode_does(net, policy, tmp_path):
    """Under l2l a copy out is on its way when the loss is there."""
    import torch

    from tests.torch.imitation import Imitation

    imitation = Imitation()
    step, module, args, loss = started(imitation, net, {"policy": policy, "cuda_graph": True}, tmp_path)
    eager = copy.deepcopy(module)
    expected, found = [], []
    for _ in range(3):
        torch.manual_seed(5)
        expected += losses_and_gradients(lambda *a: loss(eager(*a[:-1]), a[-1]), eager, args)
    with imitation:
        for _ in range(3):
            torch.manual_seed(5)
            found += losses_and_gradients(step, module, args)
    assert all(map(torch.equal, found, expected)) and len(found) == len(expected)
    for planned in step.plans.values():
        assert planned.why_no_graph == "" and planned.repeated.captures == 1
    assert len(step.plans) == 2


def test_a_step_is_captured_again_where_parameters_have_moved(tmp_path):
    import torch

    from tests.torch.imitation import Imitation

    imitation = Imitation()
    step, module, args, loss = started(imitation, "cnn", {"policy": "vdnn_all", "cuda_graph": True}, tmp_path)
    with imitation:
        for i in range(9):
            module.zero_grad()
            eager = copy.deepcopy(module)
            torch.manual_seed(i)
            loss(eager(args[0]), args[1]).backward()
            torch.manual_seed(i)
            step(*args).backward()
            assert all(
                torch.equal(p.grad, q.grad) for p, q in zip(module.parameters(), eager.parameters(), strict=True)
            )
            assert all(map(torch.equal, module.buffers(), eager.buffers()))
            if i in (3, 4, 5, 6):
                module[0].weight.data = module[0].weight.data.clone()
    (planned,) = step.plans.values()
    assert planned.repeated.captures == 4
    assert planned.why_no_graph == "parameters or buffers lie elsewhere in each step"


def test_why_a_step_has_no_graph(tmp_path):
    import torch

    from minidnn.torch.step import compile
    from tests.torch.imitation import Imitation
    from tests.torch.small import NETS

    def reason(net, **given):
        step, _, args, _ = started(Imitation(), net, given, tmp_path)
        return step.plan(*args).why_no_graph

    assert reason("cnn", policy="vdnn_all") == "cuda_graph=True was not given"
    assert "host moves tensors between the ring and its memory or a disk" in reason("cnn", cuda_graph=True, **RINGED)
    assert "draws random numbers and runs again" in reason("gpt", policy="sqrt_n", cuda_graph=True)
    module, args, loss = NETS["cnn"]()
    step = compile(module, args, loss=loss, cuda_graph=True)
    assert step.plan(*args).why_no_graph == "the module is on the CPU"
    on_gpu, _, args, _ = started(Imitation(), "cnn", {"cuda_graph": True}, tmp_path)
    with torch.no_grad():
        assert on_gpu.plan(*args).why_no_graph == "a forward pass alone is not captured"
