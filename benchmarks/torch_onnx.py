"""Nets of PyTorch by way of ONNX, beside PyTorch: a row for each net and each way to export it.

    python -m benchmarks.torch_onnx [NET ...]

The nets are those of tests/onnx/torch_nets.py. "dynamo" and "script" are PyTorch's two exporters, as the messages of
refusals advise to call them; "eval" is what they do by default. The columns: the module's parameters, the trained
blobs, and the largest relative differences of any gradient and of weights and running statistics after 3 steps.
Dropout drops nothing on either side. A blob that is no parameter, or a difference above the tests' bounds, makes the
exit code 1.
"""

from __future__ import annotations

import sys
import warnings

import torch

from minidnn.onnx import InvalidModel
from minidnn.report.table import plain
from tests.onnx import agreement
from tests.onnx.torch_nets import NETS

COLUMNS = ("net", "exporter", "read", "parameters", "blobs", "gradients", *agreement.OPTIMIZERS)


def row(name: str, how: str) -> tuple[tuple, str, bool]:
    """(the row, why the file is refused, whether all is well)"""
    torch.manual_seed(0)
    try:
        a = agreement.agreement(*NETS[name](), how)
    except agreement.NotExported as error:
        return (name, how, "not exported", *[""] * 5), f"{name}, {how}: {error}", True
    except InvalidModel as error:
        first = str(error).splitlines()[0]
        return (name, how, "refused", *[""] * 5), f"{name}, {how}: {first.removeprefix('module: ')}", True
    good = a.parameters[0] == a.parameters[1] and not a.unequal and a.gradients < 2e-4 and a.steps["SGD"] < 3e-5
    steps = [f"{value:.0e}" for value in a.steps.values()]
    return (name, how, "yes" if good else "WRONG", *map(str, a.parameters), f"{a.gradients:.0e}", *steps), "", good


def main(names: list[str]) -> int:
    warnings.simplefilter("ignore")
    rows = [row(name, how) for name in names or NETS for how in agreement.EXPORTERS]
    plain(COLUMNS, [cells for cells, _, _ in rows])
    for _, reason, _ in rows:
        if reason:
            print(reason)
    return 0 if all(good for _, _, good in rows) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
