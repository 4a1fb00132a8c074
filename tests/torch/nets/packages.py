"""Nets of other packages' classes, each made from a small configuration, without weights from elsewhere."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from tests.torch.nets.case import Case, tokens

WORDS, LENGTH = 512, 64


class Reader(nn.Module):
    """A model of `transformers`, which computes its own loss: "the module returns the loss"."""

    def __init__(self, model: nn.Module, names: tuple[str, ...]) -> None:
        super().__init__()
        self.model, self.names = model, names

    def forward(self, *given):
        return self.model(**dict(zip(self.names, given, strict=True))).loss


def gpt2(batch: int = 4) -> Case:
    from transformers import GPT2Config, GPT2LMHeadModel

    sizes = {"vocab_size": WORDS, "n_positions": LENGTH, "n_embd": 128, "n_layer": 4, "n_head": 4}
    config = GPT2Config(**sizes, bos_token_id=0, eos_token_id=0, loss_type="ForCausalLM", use_cache=False)
    x = tokens(batch, LENGTH, WORDS)
    return Case(Reader(GPT2LMHeadModel(config), ("input_ids", "labels")), (x, x))


def llama(batch: int = 4) -> Case:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=WORDS, hidden_size=128, intermediate_size=384, num_hidden_layers=4, num_attention_heads=8,
        num_key_value_heads=2, max_position_embeddings=LENGTH, use_cache=False,
    )  # fmt: skip
    x = tokens(batch, LENGTH, WORDS)
    return Case(Reader(LlamaForCausalLM(config), ("input_ids", "labels")), (x, x))


def bert(batch: int = 4) -> Case:
    from transformers import BertConfig, BertForMaskedLM

    config = BertConfig(
        vocab_size=WORDS, hidden_size=128, num_hidden_layers=4, num_attention_heads=4, intermediate_size=512,
        max_position_embeddings=LENGTH,
    )  # fmt: skip
    x, mask = tokens(batch, LENGTH, WORDS), (torch.arange(LENGTH) < LENGTH - 5).long().repeat(batch, 1)
    return Case(Reader(BertForMaskedLM(config), ("input_ids", "attention_mask", "labels")), (x, mask, x))


def t5(batch: int = 4) -> Case:
    from transformers import T5Config, T5ForConditionalGeneration

    config = T5Config(
        vocab_size=WORDS, d_model=128, d_kv=32, d_ff=384, num_layers=3, num_heads=4, decoder_start_token_id=0,
        use_cache=False,
    )  # fmt: skip
    x, y = tokens(batch, LENGTH, WORDS), tokens(batch, LENGTH // 2, WORDS)
    return Case(Reader(T5ForConditionalGeneration(config), ("input_ids", "labels")), (x, y))


def vit(batch: int = 4, size=64) -> Case:
    from transformers import ViTConfig, ViTForImageClassification

    config = ViTConfig(
        hidden_size=128, num_hidden_layers=4, num_attention_heads=4, intermediate_size=512, image_size=size,
        patch_size=8, num_labels=10, hidden_dropout_prob=0.1, problem_type="single_label_classification",
    )  # fmt: skip
    given = torch.randn(batch, 3, size, size), torch.randint(0, 10, (batch,))
    return Case(Reader(ViTForImageClassification(config), ("pixel_values", "labels")), given)


class Denoiser(nn.Module):
    """A model of `diffusers`."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, *given):
        return self.model(*given).sample


def unet(batch: int = 2, size=32) -> Case:
    from diffusers import UNet2DModel

    model = UNet2DModel(
        sample_size=size, block_out_channels=(32, 64, 64), norm_num_groups=8, attention_head_dim=8, layers_per_block=1,
        down_block_types=("DownBlock2D", "AttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "AttnUpBlock2D", "UpBlock2D"), dropout=0.1,
    )  # fmt: skip
    image = torch.randn(batch, 3, size, size)
    return Case(Denoiser(model), (image, torch.randint(0, 1000, (batch,)), torch.randn_like(image)), F.mse_loss)


def conditioned(batch: int = 2, size=32) -> Case:
    from diffusers import UNet2DConditionModel

    model = UNet2DConditionModel(
        sample_size=size, block_out_channels=(32, 64), norm_num_groups=8, attention_head_dim=8, layers_per_block=1,
        cross_attention_dim=64, down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
    )  # fmt: skip
    image, text = torch.randn(batch, 4, size, size), torch.randn(batch, 12, 64)
    given = image, torch.randint(0, 1000, (batch,)), text, torch.randn_like(image)
    return Case(Denoiser(model), given, F.mse_loss)
