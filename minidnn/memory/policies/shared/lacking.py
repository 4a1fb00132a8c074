"""The refusal of a policy that finds nothing in a model to work on."""

from __future__ import annotations

from minidnn.errors import BadInput


class Lacking(BadInput):
    """The model lacks what the policy is about; the message says what that is, and which policy does without."""
