"""oneDNN's kernels, and NumPy's over blocks where oneDNN has none.

`library.py` finds oneDNN's file, and `dnnl.py` is its C API. Each family's file has a table KINDS: kind -> f(dnnl, op)
-> recipes, best first; none for a geometry that is left to the reference's kernel.

A docstring lists an op's tensors as `x w (b) -> y`; parentheses mark a tensor that not every op of the kind has.
"""

from minidnn.backends.families import joined

KINDS = joined(__name__, "KINDS")
BY_THREADS = {"convolution.backward_filter"}  # kinds of which oneDNN cuts sums into one piece per thread
