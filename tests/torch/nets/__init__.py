"""PyTorch modules of today's kinds, whole in their structure and small enough for a CPU: `NETS` has a function for
each, which takes a batch's size, or none, and gives a `Case`. Those of other packages' classes are in `PACKAGES`,
with what they need."""

from __future__ import annotations

from collections.abc import Callable

from tests.torch.nets import images, packages, words
from tests.torch.nets.case import Case

OWN: dict[str, Callable[..., Case]] = {
    "vit": images.vit,
    "gpt2": words.gpt2,
    "llama": words.llama,
    "bert": words.bert,
    "convnext": images.convnext,
    "resnet50": images.resnet50,
    "densenet121": images.densenet121,
    "unet": images.unet,
    "mixer": images.mixer,
    "encoder": words.encoder,
    "lstm": words.lstm,
    "vgg": images.vgg,
    "mobilenet": images.mobilenet,
}
PACKAGES: dict[str, tuple[Callable[..., Case], str]] = {
    "transformers_gpt2": (packages.gpt2, "transformers"),
    "transformers_llama": (packages.llama, "transformers"),
    "transformers_bert": (packages.bert, "transformers"),
    "transformers_t5": (packages.t5, "transformers"),
    "transformers_vit": (packages.vit, "transformers"),
    "diffusers_unet": (packages.unet, "diffusers"),
    "diffusers_conditioned": (packages.conditioned, "diffusers"),
}
NETS = {**OWN, **{name: make for name, (make, _) in PACKAGES.items()}}
