"""BERT (Devlin et al., "BERT: Pre-training of Deep Bidirectional Transformers for Language Understanding", 2019), which
restores masked tokens.

Tokens are masked as published (data/masks.py). The table of tokens is the head, too, with a bias. So the parameters are
those of the published BertForMaskedLM, 109,514,298 and 335,174,458. The objective is that of masked tokens alone: there
is no pooler, of which BertModel's 109,482,240 and 335,141,888 have 590,592 and 1,049,600. A window is full and is one
segment: there is no mask of padding, and the second segment's row rests.
"""

from __future__ import annotations

from minidnn.nets.define import L, Top
from minidnn.nets.net import Net
from minidnn.zoo.pieces import SMALL, dropped, embedded, linear, mlp, predicted, windows

TABLE, MASK, UNMASKED = "tokens", 103, -1  # MASK: [MASK] in the published vocabularies
EPS = 1e-12


class BertBase(Net):
    """BERT base: 12 blocks of width 768, 12 heads, 109 million parameters."""

    name = "bert_base"

    def define(
        self, batch: int = 8, seq: int = 512, width: int = 768, blocks: int = 12, heads: int = 12,
        vocabulary: int = 30522, dropout: float = 0.1, mask: int = MASK,
    ) -> None:  # fmt: skip
        tokens, label = windows(batch, seq, vocabulary, mask_token=mask, mask_vocabulary=vocabulary)
        x = embedded(tokens, TABLE, vocabulary, width)
        x = L.Bias(x, name="positions", axis=1, num_axes=2, filler=SMALL)
        x = L.Bias(x, segment(width), name="segmented", axis=2)
        x = dropped(normed(x, "norm"), "drop", dropout)
        for i in range(1, blocks + 1):
            x = block(x, f"block{i}", width, heads, dropout)
        x = L.GELU(linear(x, "transform", width), name="gelu", in_place=False)
        predicted(normed(x, "transform_norm"), label, TABLE, vocabulary, bias=True, ignore_label=UNMASKED)


class BertLarge(BertBase):
    """BERT large: 24 blocks of width 1024, 16 heads, 335 million parameters."""

    name = "bert_large"

    def define(self, batch: int = 8, seq: int = 512) -> None:  # type: ignore[override]
        super().define(batch, seq, 1024, 24, 16)


def block(x: Top, name: str, width: int, heads: int, dropout: float) -> Top:
    """Attention, then an MLP, each added to x and then normalized."""
    y = linear(x, f"{name}/qkv", 3 * width)
    y = L.Attention(y, name=f"{name}/attention", num_heads=heads, dropout_ratio=dropout)
    y = dropped(linear(y, f"{name}/out", width), f"{name}/drop1", dropout)
    x = normed(L.Eltwise(x, y, name=f"{name}/sum1"), f"{name}/norm1")
    y = dropped(mlp(x, name, 4 * width, width), f"{name}/drop2", dropout)
    return normed(L.Eltwise(x, y, name=f"{name}/sum2"), f"{name}/norm2")


def segment(width: int) -> Top:
    """The first row of the table of two segments: (width,)."""
    table = L.Parameter(name="segments", shape={"dim": [2, width]})
    first, second = L.Slice(table, name="segment", top=["first_segment", "second_segment"], axis=0, slice_point=1)
    L.Silence(second, name="rests")
    return L.Flatten(first, name="row", axis=0)


def normed(x: Top, name: str) -> Top:
    return L.LayerNorm(x, name=name, eps=EPS)
