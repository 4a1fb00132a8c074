"""The words for what the bound of a policy's table is not of (memory/joint/variants.py)."""

UNBOUND = "but by updates on the host or in other parts"
