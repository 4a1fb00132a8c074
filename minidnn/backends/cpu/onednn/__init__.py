"""oneDNN's kernels, and NumPy over blocks where it has none.

`library.py` finds oneDNN's file, and `dnnl.py` is its C API. Each family's file has a table KINDS: kind -> (dnnl, op)
-> recipes, best first; none where a geometry is left to the reference's kernel.
"""

from minidnn.backends.cpu.onednn import convolution, elementwise, inner_product, join, loss, lrn, normalization, update

KINDS = {
    **convolution.KINDS,
    **inner_product.KINDS,
    **normalization.KINDS,
    **lrn.KINDS,
    **elementwise.KINDS,
    **join.KINDS,
    **loss.KINDS,
    **update.KINDS,
}
