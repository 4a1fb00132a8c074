"""Kernels by oneDNN and NumPy for machines without a C compiler, of kinds that native/ has in C. If there is a
compiler, nothing here runs.

Each family's file has a table KINDS as in onednn/, and uses parts of that folder. Nothing in onednn/ uses this folder.
"""

from minidnn.backends.cpu.uncompiled import (
    activation,
    bias,
    dropout,
    inner_product,
    join,
    loss,
    lrn,
    normalization,
    pooling,
    update,
)

KINDS = {
    **inner_product.KINDS,
    **bias.KINDS,
    **pooling.KINDS,
    **activation.KINDS,
    **normalization.KINDS,
    **lrn.KINDS,
    **dropout.KINDS,
    **join.KINDS,
    **loss.KINDS,
    **update.KINDS,
}
