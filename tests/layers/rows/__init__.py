"""Rows of all layers. Each file has two tables.

ROWS    by name: a layer's text, its shapes, its ops, and PyTorch's function
RANDOM  by type: a function from a random generator to a row of any geometry, whose tops and ops are left out
"""

from __future__ import annotations

from tests.layers.rows import activations, algebra, images, losses, moves, parameter, recurrent, spine

FILES = (spine, images, moves, parameter, activations, losses, algebra, recurrent)
ROWS = {name: row for file in FILES for name, row in file.ROWS.items()}
RANDOM = {kind: draw for file in FILES for kind, draw in file.RANDOM.items()}
