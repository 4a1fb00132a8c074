"""What PyTorch keeps a gradient from, and what changes while a module trains: as there, or refused by name."""

from __future__ import annotations

import warnings

import pytest

pytest.importorskip("onnx", reason="the package onnx is not installed (the extra `onnx`)")

import minidnn
from minidnn.errors import InvalidInput
from minidnn.onnx import InvalidModel, read

pytestmark = pytest.mark.peer("torch", "onnxscript")


def module(build, forward):
    """A module whose `__init__` and `forward` are these."""
    from torch import nn

    class Module(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.o = nn.Linear(6, 6), nn.Linear(6, 5)
            build(self)

        def forward(self, x):
            return forward(self, x)

    return Module()


def nothing(m):
    pass


def detached(m, x):
    import torch

    h = torch.relu(m.a(x))
    return m.o(h * h.sigmoid().detach())


def steps_agree(m, x):
    """Assert that three steps of SGD give PyTorch's state."""
    import torch

    y = torch.arange(len(x)) % 5
    net = minidnn.from_torch(m, x, notes=[])
    with minidnn.Solver(
        net, data=(x.numpy(), y.numpy()), base_lr=0.1, momentum=0.9, lr_policy="fixed", device="cpu", max_iter=3
    ) as solver:
        solver.step(3)
        state = net.to_torch_state_dict(solver)
    optimizer = torch.optim.SGD([p for p in m.parameters() if p.requires_grad], lr=0.1, momentum=0.9)
    for _ in range(3):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(m(x), y).backward()
        optimizer.step()
    for key, value in m.state_dict().items():
        torch.testing.assert_close(state[key], value, rtol=1e-4, atol=2e-6)
    return net


def exported(m, x, path, **more):
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(m, (x,), path, verbose=False, **more)
    return path


def scripted(m, x, path):
    return exported(m.eval(), x, path, dynamo=False, opset_version=17)


def test_a_detached_value_lets_no_gradient_through(tmp_path):
    import torch

    torch.manual_seed(0)
    m, x = module(nothing, detached), torch.randn(4, 6)
    with pytest.raises(InvalidModel, match="the exporter has left out that 'detach' lets no gradient through"):
        read(exported(m, x, tmp_path / "m.onnx", dynamo=True), loss=True)
    steps_agree(m, x)


def test_a_batch_norm_that_is_in_eval_stays_so():
    import torch
    from torch import nn

    def build(m):
        m.bn = nn.BatchNorm1d(6).eval()
        m.bn.running_mean.normal_(), m.bn.running_var.uniform_(0.5, 2)
        m.last = nn.BatchNorm1d(5)

    torch.manual_seed(0)
    net = steps_agree(module(build, lambda m, x: m.last(m.o(m.bn(m.a(x)).tanh()))), torch.randn(4, 6))
    norms = [layer for layer in net.layers if layer.type == "BatchNorm"]
    assert [layer.batch_norm_param.use_global_stats for layer in norms] == [True, None]


def test_parameters_under_no_grad_are_refused_and_constants_are_not():
    import torch

    x = torch.randn(4, 6)

    def frozen(m, x):
        with torch.no_grad():
            h = m.a(x)
        return m.o(h)

    def table(m, x):
        with torch.no_grad():
            angles = torch.arange(6).float().cos()
        return m.o(m.a(x) * angles)

    with pytest.raises(InvalidModel, match=r"Module: it computes with a\.bias, a\.weight under torch\.no_grad"):
        minidnn.from_torch(module(nothing, frozen), x)
    steps_agree(module(nothing, table), x)
    m = module(nothing, frozen)
    m.a.requires_grad_(False)
    steps_agree(m, x)


def test_a_buffer_that_moves_is_refused_if_it_is_read():
    import torch

    def build(m):
        m.register_buffer("ema", torch.zeros(5))

    def forward(m, x):
        y = m.o(m.a(x))
        m.ema.mul_(0.9).add_(0.1 * y.detach().mean(0))
        return y - m.ema

    with pytest.raises(InvalidModel, match="Module: the module changes its buffer 'ema' in each step"):
        minidnn.from_torch(module(build, forward), torch.randn(4, 6))


def test_a_parameter_with_the_name_of_an_operation(tmp_path):
    import torch
    from torch import nn

    def build(m):
        m.t = nn.Parameter(torch.randn(6, 6))
        m.register_buffer("mean", torch.rand(6))

    def forward(m, x):
        x = torch.tanh(m.a(x - m.mean) @ m.t.exp().t())
        return m.o(x - x.mean(1, keepdim=True))

    torch.manual_seed(0)
    m, x = module(build, forward), torch.randn(4, 6)
    for optimize, reason in (
        (False, "'t' has been used as output names"),
        (True, "the name of the parameter 't'"),
    ):
        path = exported(m, x, tmp_path / "m.onnx", dynamo=True, optimize=optimize)
        with pytest.raises(InvalidModel, match=reason):
            read(path, loss=True)
    steps_agree(m, x)


def test_a_row_of_padding_is_told():
    import torch
    from torch import nn

    m, notes = nn.Sequential(nn.Embedding(9, 4, padding_idx=0), nn.Linear(4, 3)), []
    minidnn.from_torch(m, torch.tensor([[1, 2]]), notes=notes)
    assert notes == ["Sequential: row 0 of 0.weight is trained as the others are, though it is PyTorch's padding_idx"]


def test_parts_of_a_parameter_are_no_weights_of_their_own(tmp_path):
    import torch
    from torch import nn

    def build(m):
        m.w = nn.Parameter(torch.randn(12, 6))

    def forward(m, x):
        p, q = m.w.chunk(2)
        return m.o(torch.tanh(x @ p.t()) * (x @ q.t()))

    x = torch.randn(4, 6)
    path = scripted(module(build, forward), x, tmp_path / "m.onnx")
    with pytest.raises(InvalidModel, match="has computed the constant 'onnx::MatMul_"):
        read(path, loss=True)
    whole = nn.Sequential(module(build, forward), nn.Tanh())
    path = scripted(whole, x, tmp_path / "m.onnx")
    with pytest.raises(InvalidModel, match="has computed the constant 'onnx::MatMul_"):
        read(path, loss=True)


def test_what_the_older_exporter_leaves_open_is_told(tmp_path):
    import torch
    from torch import nn

    def build(m):
        m.register_buffer("factors", torch.rand(5))
        m.w = nn.Parameter(torch.zeros(3))

    notes: list[str] = []
    path = scripted(
        module(build, lambda m, x: m.o(m.a(x)) * m.factors * m.w.softmax(0)[0]), torch.randn(4, 6), tmp_path / "m.onnx"
    )
    read(path, loss=True, notes=notes)
    text = "\n".join(notes)
    assert "trained, as a parameter, which the file does not tell from a buffer: factors;" in text
    assert "frozen, though the exporter may have computed it from a parameter: onnx::Mul_" in text


def test_a_net_that_lacks_what_trains_takes_no_loss(tmp_path):
    import torch
    from torch import nn

    m = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten())
    path = exported(m.eval(), torch.randn(2, 3, 4, 4), tmp_path / "m.onnx", dynamo=True)
    net, _ = read(path, notes=[])
    for one in (net, net.with_batch(4), net.with_weights({})):
        with pytest.raises(InvalidInput, match=r"folded the BatchNorm '1' .*; export it by"):
            one.with_loss()


def test_a_softmax_of_one_number_is_refused():
    import torch
    from torch import nn

    with pytest.raises(InvalidModel, match=r"its output 'linear' has shape \(2, 1\): a softmax of one number"):
        minidnn.from_torch(nn.Linear(3, 1), torch.randn(2, 3))
    net = minidnn.from_torch(nn.Linear(3, 1), torch.randn(2, 3), loss=False).with_loss()
    assert net.layers[-1].type == "EuclideanLoss"
    net = minidnn.from_torch(nn.Linear(3, 4), torch.randn(2, 5, 3), loss=False).with_loss()
    assert net.layers[-1].softmax_param.axis == 2


def test_a_function_with_a_backward_of_its_own_is_told():
    import torch

    class Reversal(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.view_as(x)

        @staticmethod
        def backward(ctx, gradient):
            return -gradient

    m, notes = module(nothing, lambda m, x: m.o(Reversal.apply(m.a(x)))), []
    minidnn.from_torch(m, torch.randn(4, 6), notes=notes)
    assert notes == [
        "Module: the function Reversal has a backward of its own, and minidnn computes the gradient of its forward"
    ]


def test_statistics_of_two_calls_are_told():
    import torch
    from torch import nn

    def build(m):
        m.conv, m.norm = nn.Conv2d(3, 3, 3, padding=1), nn.BatchNorm2d(3)

    def forward(m, x):
        return m.norm(m.conv(torch.relu(m.norm(m.conv(x))))).mean((2, 3))

    notes: list[str] = []
    minidnn.from_torch(module(build, forward), torch.randn(4, 3, 6, 6), notes=notes)
    (line,) = notes
    assert line.startswith("Module: norm.running_mean is of 2 calls; minidnn keeps statistics for each")
