"""The tier for machines with oneDNN and without a C compiler: by oneDNN and NumPy, kinds that native/ has in C. Where
there is a compiler, nothing here runs.

Each family's file has a table KINDS as in onednn/, and uses that folder's parts. Nothing there uses this folder.
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
