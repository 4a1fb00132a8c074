"""Our own kernels in C, on the same layout as oneDNN's: activations NHWC, filters OHWI.

A family has a C file and a Python module of the same name; each algorithm of a convolution has files of its own. A
family's module has one or both of these tables: kind -> f(native, op) -> recipes, none for a geometry that the kernels
do not cover.
    FIRST   better than oneDNN's or NumPy's recipes, so offered before them. A recipe named NAME replaces them.
    MORE    another algorithm, with another workspace: offered after them, so that a plan can choose it.

They are C and not Numba's Python, which would take 208 MB more and a slower start. oneDNN alone would not do: below
AVX-512 it has no fast product.

A docstring lists an op's tensors as `x w (b) -> y`; parentheses mark a tensor that not every op of the kind has.
"""

from minidnn.backends.cpu.native.binding import NAME, Native, Recipes
from minidnn.backends.families import joined

FIRST = joined(__name__, "FIRST")
MORE = joined(__name__, "MORE")

__all__ = ["FIRST", "MORE", "NAME", "Native", "Recipes"]
