"""GPT-2 (Radford et al., "Language Models are Unsupervised Multitask Learners", 2019), in its four sizes.

The table of tokens is the head, too. Positions have a table of their own, as long as a window. The sources give made-up
tokens; `source`, such as `tokens:FILE.bin:length=1024`, reads your own.
"""

from __future__ import annotations

from minidnn.nets.define import L
from minidnn.nets.net import Net
from minidnn.zoo.pieces import SMALL, block, dropped, embedded, predicted, windows

TABLE = "tokens"  # shared by the embedding and the head


class GPT2(Net):
    """GPT-2 small: 12 blocks of width 768, 12 heads, 124 million parameters."""

    name = "gpt2"

    def define(
        self, batch: int = 4, seq: int = 1024, width: int = 768, blocks: int = 12, heads: int = 12,
        vocabulary: int = 50257, dropout: float = 0.1, source: str = "",
    ) -> None:  # fmt: skip
        tokens, label = windows(batch, seq, vocabulary, source)
        x = embedded(tokens, TABLE, vocabulary, width)
        x = L.Bias(x, name="positions", axis=1, num_axes=2, filler=SMALL)
        x = dropped(x, "drop", dropout)
        for i in range(1, blocks + 1):
            x = block(x, f"block{i}", width, heads, {}, tanh=True, dropout=dropout, causal=True, dropout_ratio=dropout)
        predicted(L.LayerNorm(x, name="norm"), label, TABLE, vocabulary)


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
