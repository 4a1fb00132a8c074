"""GPT-2 (Radford et al., "Language Models are Unsupervised Multitask Learners", 2019), in its four sizes.

The table of tokens is the head, too. Positions have a table of their own, as long as a window. The sources give made-up
tokens; `tokens:FILE.bin:length=1024` in their place reads your own.
"""

from __future__ import annotations

from minidnn.nets.define import L, Top
from minidnn.nets.net import Net

TABLE = [{"name": "tokens"}]  # shared by the embedding and the head
SMALL = {"type": "gaussian", "std": 0.02}


class GPT2(Net):
    """GPT-2 small: 12 blocks of width 768, 12 heads, 124 million parameters."""

    name = "gpt2"

    def define(
        self, batch: int = 4, seq: int = 1024, width: int = 768, blocks: int = 12, heads: int = 12,
        vocabulary: int = 50257, dropout: float = 0.1,
    ) -> None:  # fmt: skip
        source = f"synthetic_tokens:{seq}:classes={vocabulary}"
        tokens, label = L.Data(name="data", source=source, batch_size=batch)
        x = L.Embed(
            tokens, name="embed", param=TABLE, num_output=width, input_dim=vocabulary, bias_term=False,
            weight_filler=SMALL,
        )  # fmt: skip
        x = L.Bias(x, name="positions", axis=1, num_axes=2, filler=SMALL)
        x = _dropped(x, "drop", dropout)
        for i in range(1, blocks + 1):
            y = L.LayerNorm(x, name=f"block{i}/norm1")
            y = _full(y, f"block{i}/qkv", 3 * width)
            y = L.Attention(y, name=f"block{i}/attention", num_heads=heads, causal=True, dropout_ratio=dropout)
            y = _dropped(_full(y, f"block{i}/out", width), f"block{i}/drop1", dropout)
            x = L.Eltwise(x, y, name=f"block{i}/sum1")
            y = L.LayerNorm(x, name=f"block{i}/norm2")
            y = L.GELU(_full(y, f"block{i}/mlp1", 4 * width), name=f"block{i}/gelu", approximate="TANH", in_place=False)
            y = _dropped(_full(y, f"block{i}/mlp2", width), f"block{i}/drop2", dropout)
            x = L.Eltwise(x, y, name=f"block{i}/sum2")
        x = L.LayerNorm(x, name="norm")
        L.InnerProductWithLoss(
            x, label, name="loss", param=TABLE, num_output=vocabulary, axis=2, bias_term=False, weight_filler=SMALL
        )


class GPT2Medium(GPT2):
    """24 blocks of width 1024, 16 heads."""

    name = "gpt2_medium"

    def define(self, batch: int = 4, seq: int = 1024) -> None:  # type: ignore[override]
        super().define(batch, seq, 1024, 24, 16)


class GPT2Large(GPT2):
    """36 blocks of width 1280, 20 heads."""

    name = "gpt2_large"

    def define(self, batch: int = 4, seq: int = 1024) -> None:  # type: ignore[override]
        super().define(batch, seq, 1280, 36, 20)


class GPT2XL(GPT2):
    """48 blocks of width 1600, 25 heads."""

    name = "gpt2_xl"

    def define(self, batch: int = 4, seq: int = 1024) -> None:  # type: ignore[override]
        super().define(batch, seq, 1600, 48, 25)


def _full(x: Top, name: str, outputs: int) -> Top:
    return L.InnerProduct(x, name=name, axis=2, num_output=outputs, weight_filler=SMALL)


def _dropped(x: Top, name: str, ratio: float) -> Top:
    return L.Dropout(x, name=name, in_place=True, dropout_ratio=ratio) if ratio else x
