"""Offloading, recomputation and algorithms decided together, by costs: the bound that no plan is below."""
