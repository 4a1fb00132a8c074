"""Llama (Touvron et al., "LLaMA: Open and Efficient Foundation Language Models", 2023; Grattafiori et al., "The Llama 3
Herd of Models", 2024): RMSNorm before each part, rotary embeddings, grouped queries, and a gated MLP."""

from __future__ import annotations

from minidnn.nets.define import L, Top
from minidnn.nets.net import Net
from minidnn.zoo.pieces import embedded, linear, predicted, windows

TABLE = "tokens"  # of the embedding, and where it is shared of the head, too


class Llama(Net):
    """Llama 3.2 1B: 16 blocks of width 2048, 32 heads in 8 groups, an MLP of 8192; the embedding is the head, too."""

    name = "llama_1b"

    def define(
        self, batch: int = 1, seq: int = 2048, width: int = 2048, blocks: int = 16, heads: int = 32, kv_heads: int = 8,
        mlp: int = 8192, vocabulary: int = 128256, base: float = 500000.0, tied: bool = True, source: str = "",
    ) -> None:  # fmt: skip
        depth = width // heads
        tokens, label = windows(batch, seq, vocabulary, source)
        x = embedded(tokens, TABLE, vocabulary, width)
        for i in range(1, blocks + 1):
            y = _normed(x, f"block{i}/norm1")
            y = _linear(y, f"block{i}/qkv", (heads + 2 * kv_heads) * depth)
            y = L.RotaryEmbedding(
                y, name=f"block{i}/turned", in_place=True, num_heads=heads + kv_heads, head_dim=depth, base=base
            )
            y = L.Attention(y, name=f"block{i}/attention", num_heads=heads, num_kv_heads=kv_heads, causal=True)
            x = L.Eltwise(x, _linear(y, f"block{i}/out", width), name=f"block{i}/sum1")
            y = _normed(x, f"block{i}/norm2")
            gate = L.Swish(_linear(y, f"block{i}/gate", mlp), name=f"block{i}/silu", in_place=False)
            y = L.Eltwise(gate, _linear(y, f"block{i}/up", mlp), name=f"block{i}/gated", operation="PROD")
            x = L.Eltwise(x, _linear(y, f"block{i}/down", width), name=f"block{i}/sum2")
        predicted(_normed(x, "norm"), label, TABLE if tied else "head", vocabulary)


class Llama8B(Llama):
    """Llama 3.1 8B: 32 blocks of width 4096, 32 heads in 8 groups, an MLP of 14336, a head of its own."""

    name = "llama_8b"

    def define(self, batch: int = 1, seq: int = 2048) -> None:  # type: ignore[override]
        super().define(batch, seq, 4096, 32, 32, 8, 14336, tied=False)


def _normed(x: Top, name: str) -> Top:
    """RMSNorm with its gain."""
    x = L.RMSNorm(x, name=name, axis=2)
    return L.Scale(x, name=f"{name}_gain", axis=2, num_axes=-1, in_place=False)


def _linear(x: Top, name: str, outputs: int) -> Top:
    return linear(x, name, outputs, bias=False)
