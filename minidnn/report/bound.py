"""The words for what the bound of a policy's table is not of (memory/joint/variants.py)."""

UNBOUND = "unless it updates weights on the host or splits the batch differently"
