"""Masked tokens, for nets that restore them (Devlin et al., "BERT", 2019, section 3.1 and appendix A.1).

Each token is chosen with the probability `ratio`. Of the chosen ones 8 in 10 become the token that masks, 1 in 10 any
token, and 1 in 10 stays. The labels are the tokens as they were where they are chosen, and UNMASKED elsewhere. The
random numbers are a function of (seed, the sample's number since training began): each epoch masks other tokens.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from minidnn.data.random import below, fractions

UNMASKED = -1  # the label of tokens that are not chosen: a loss ignores it
_CHOSEN, _FATE, _ANY = 11, 12, 13  # lanes of the random numbers (data/random.py)


@dataclass(frozen=True)
class Masks:
    """`token` takes the place of chosen tokens, or any one below `vocabulary` does."""

    token: int
    vocabulary: int
    ratio: float
    seed: int = 0

    def __call__(self, tokens: np.ndarray, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(masked tokens, labels), both int32 (n, T), of n windows of T tokens with these numbers."""
        places = np.asarray(numbers, np.int64)[:, None] * tokens.shape[1] + np.arange(tokens.shape[1])
        chosen, fate = fractions(self.seed, places, _CHOSEN) < self.ratio, below(self.seed, places, _FATE, 10)
        masked = np.where(chosen & (fate < 8), self.token, tokens)
        masked = np.where(chosen & (fate == 8), below(self.seed, places, _ANY, self.vocabulary), masked)
        return masked.astype(np.int32), np.where(chosen, tokens, UNMASKED).astype(np.int32)
