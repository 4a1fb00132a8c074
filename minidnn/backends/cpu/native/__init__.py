"""Our own kernels in C, on the same layout as oneDNN's: activations NHWC, filters OHWI.

A family has a C file and a Python module of the same name; each algorithm of a convolution has files of its own. A
family's module has one or more of these tables: kind -> f(native, op) -> recipes, none for a geometry that the kernels
do not cover.
    FIRST   better than oneDNN's or NumPy's recipes, so offered before them. A recipe named NAME replaces them.
    MORE    another algorithm, with another workspace: offered after them, so that a plan can choose it.
    HALF    for tensors of 16 bits as they are, with the bits of FIRST's on copies; other kinds need these (half/).

They are C and not Numba's Python, which would take 208 MB more and a slower start. oneDNN alone would not do: below
AVX-512 it has no fast product.

A docstring lists an op's tensors as `x w (b) -> y`; parentheses mark a tensor that not every op of the kind has.
"""

from minidnn.backends.cpu.native.binding import NAME, Native, Recipes
from minidnn.backends.families import joined

FIRST = joined(__name__, "FIRST")
MORE = joined(__name__, "MORE")
HALF = joined(__name__, "HALF")

__all__ = ["FIRST", "HALF", "MORE", "NAME", "Native", "Recipes"]
