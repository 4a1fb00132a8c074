"""Inner product by NumPy's BLAS on one thread: the last resort below AVX-512, where oneDNN has no fast product."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
from threadpoolctl import ThreadpoolController

from minidnn.backends.cpu.layout import flat
from minidnn.backends.cpu.onednn import dnnl as d
from minidnn.backends.cpu.onednn.inner_product import Product, product
from minidnn.backends.cpu.recipe import Call, Recipe, plain
from minidnn.program import Op


def recipes(dnnl: d.Dnnl, op: Op) -> list[Recipe]:
    """One recipe for x w (b) -> y, w dy -> dx, or x dy -> dw; none if the elements of x's and w's rows are in different
    orders."""
    if (found := product(op)) is None:
        return []
    return [plain(lambda reads, writes, _: _blas(found, found.operands(reads), writes[0]), "blas")]


def _blas(product: Product, arrays: Sequence[np.ndarray], result: np.ndarray) -> list[Call]:
    a, b, c = product.left.of(arrays[0]), product.right.of(arrays[1]), product.out.of(result)
    libraries = [x for x in ThreadpoolController().lib_controllers if x.user_api == "blas"]
    before = [x.get_num_threads() for x in libraries]

    def call() -> None:
        for x in libraries:  # on several threads OpenBLAS allocates half a megabyte in every call
            x.set_num_threads(1)
        np.matmul(a, b, out=c)
        for x, threads in zip(libraries, before, strict=True):
            x.set_num_threads(threads)

    def add(bias: np.ndarray) -> None:
        for row in c:  # row by row: a broadcast would allocate a buffer
            np.add(row, bias, out=row)

    return [call, *(partial(add, flat(bias)) for bias in arrays[2:])]


KINDS = {
    "inner_product.forward": recipes,
    "inner_product.backward_data": recipes,
    "inner_product.backward_filter": recipes,
}
