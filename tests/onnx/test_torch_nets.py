"""Nets of today's kinds from PyTorch's exporters: what is trained, every gradient, and three steps of training."""

from __future__ import annotations

import pytest

pytest.importorskip("onnx", reason="the package onnx is not installed (the extra `onnx`)")

from minidnn.onnx import InvalidModel

pytestmark = pytest.mark.peer("torch", "onnxscript")

NAMES = (
    "vit", "vit_token", "gpt", "bert", "llama", "llama_rms", "convnext", "mixer", "unet", "resnet", "densenet",
    "mobilenet", "efficientnet", "encoder", "se_resnet", "recurrent",
)  # fmt: skip
# Files from which PyTorch's own defaults take something out; the call that keeps it is in the message.
FOLDED = {("bert", "dynamo, eval"), *((name, "script, eval") for name in ("gpt", "bert", "unet"))}
FOLDED |= {
    (name, how)
    for name in ("resnet", "mobilenet", "efficientnet", "se_resnet", "recurrent")
    for how in ("dynamo, eval", "script, eval")
}
WITHOUT = {("llama_rms", "script"), ("llama_rms", "script, eval")}  # the older exporter has no rms_norm


@pytest.mark.parametrize("how", ["dynamo", "dynamo, eval", "script", "script, eval"])
@pytest.mark.parametrize("name", NAMES)
def test_a_net_from_pytorch_trains_as_it_does_there(name, how, record_property):
    import torch

    from tests.onnx import agreement, torch_nets

    torch.manual_seed(0)
    module, samples, classes = torch_nets.NETS[name]()
    if (name, how) in WITHOUT:
        with pytest.raises(agreement.NotExported):
            agreement.exported(module, samples, how)
        return
    if (name, how) in FOLDED:
        with pytest.raises(InvalidModel, match=r"; export it by torch\.onnx\.export\(model\.train\(\), samples, "):
            agreement.agreement(module, samples, classes, how)
        return
    result = agreement.agreement(module, samples, classes, how)
    record_property("said", f"{name}, {how}: {result}")
    assert result.parameters[0] == result.parameters[1]
    assert not result.unequal
    assert result.forward < 1e-5
    assert result.gradients < 2e-4
    assert result.steps["SGD"] < 3e-5
    assert result.steps["AdamW"] < 2e-2  # which divides by the gradient, and so enlarges its rounding
