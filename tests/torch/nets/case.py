"""A module with what a step of it is given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import nn


class Case(NamedTuple):
    """
    args: of a step; with a loss function, the last one is the target
    loss: None: the module itself returns the loss
    """

    module: nn.Module
    args: tuple[Any, ...]
    loss: Callable[..., torch.Tensor] | None = None

    def eager(self, module: nn.Module) -> torch.Tensor:
        """The loss of a copy of the module, by PyTorch itself."""
        if self.loss is None:
            return module(*self.args)
        return self.loss(module(*self.args[:-1]), self.args[-1])


def of_words(output: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
    """Cross-entropy of each word."""
    return F.cross_entropy(output.flatten(0, -2), words.flatten())


def tokens(batch: int, length: int, words: int) -> torch.Tensor:
    return torch.randint(0, words, (batch, length))


def labelled(module: nn.Module, batch: int, size: int, classes: int = 10) -> Case:
    """A classifier of images."""
    return Case(module, (torch.randn(batch, 3, size, size), torch.randint(0, classes, (batch,))), F.cross_entropy)
