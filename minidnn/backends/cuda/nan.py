"""Finds out on the GPU whether cuDNN's ReLU keeps NaN.

cuDNN applies the ReLU after a convolution and its bias in the same kernel. No document says whether that kernel keeps
NaN: the maximum of NaN and 0 may be 0. Then a net whose weights are lost would go on with zeros, and its loss would
stay finite. So each kernel is run once on an image of NaN. A kernel that hides NaN is not listed, nor one that cuDNN
does not run.

All of cuDNN's kernels turn -inf into 0, while our own ReLU turns -inf into NaN. Both keep +inf.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np

from minidnn.backends.cuda.api import Api
from minidnn.backends.cuda.cudnn import B, Convolution, Cudnn, CudnnPlan, W, X, Y
from minidnn.formats import itemsize
from minidnn.memory.schedule import aligned

NAN = 0xFF  # a value is NaN in all formats if every byte is this
_BITS = {"float32": ("uint32", 0x7F800000), "float16": ("uint16", 0x7C00), "bfloat16": ("uint16", 0x7F80)}  # infinity


class NanProbe:
    """Tries plans on one image, which is quick and small; the result holds for a batch. If a plan's name is not listed
    for one image, all plans of its engine that are listed there must keep NaN."""

    def __init__(self, api: Api, cudnn: Cudnn, stream: int) -> None:
        self.api, self.cudnn, self.stream = api, cudnn, stream
        self._found: dict[Convolution, dict[str, bool]] = {}  # for one image: plan's name -> whether it keeps NaN
        self.trying = ""  # the plan that was tried last
        self.refused: dict[str, str] = {}  # plan -> cuDNN's message when it did not run; such a plan is not listed

    def keeps(self, plan: CudnnPlan) -> bool:
        """Whether the plan keeps NaN. Raises api.OutOfMemory if there is no room for one image."""
        problem = one_image(plan.problem)
        if problem not in self._found:
            self._found[problem] = self._run(problem)
        result = self._found[problem]
        if plan.name in result:
            return result[plan.name]
        alike = [kept for name, kept in result.items() if name.split("_")[0] == plan.engine]
        return bool(alike) and all(alike)

    def hiding(self) -> list[str]:
        """The engines with a plan that was seen to hide NaN."""
        return sorted({name.split("_")[0] for of in self._found.values() for name, kept in of.items() if not kept})

    def _run(self, problem: Convolution) -> dict[str, bool]:
        plans = self.cudnn.listed(problem)
        shapes = {X: problem.x, W: problem.w, B: problem.w[:1], Y: problem.y}
        sizes = {uid: aligned(prod(shape) * itemsize(problem.dtype)) for uid, shape in shapes.items()}
        sizes[0] = max((aligned(p.workspace) for p in plans), default=0)
        whole = self.api.allocate(sum(sizes.values()))
        try:
            host = self.api.allocate_host(sizes[Y])
        except BaseException:
            self.api.release(whole)
            raise
        try:
            at, pack = whole, {}
            for uid, size in sizes.items():
                pack[uid] = at
                at += size
            workspace = pack.pop(0)
            self.api.fill(whole, 0, sum(sizes.values()), self.stream)
            self.api.fill(pack[X], NAN, sizes[X], self.stream)
            return {p.name: self._stays(p, pack, workspace, host) for p in plans}
        finally:
            self.api.synchronize(self.stream)
            self.api.release(whole)
            self.api.release_host(host)

    def _stays(self, plan: CudnnPlan, pack: dict[int, int], workspace: int, host: np.ndarray) -> bool:
        """host: as many page-locked bytes as y takes, which the next plan uses, too"""
        problem, self.trying = plan.problem, plan.name
        self.api.fill(pack[Y], 0, host.nbytes, self.stream)
        try:
            self.cudnn.execute(plan, pack, workspace)
        except Exception as error:  # an error of the GPU itself is raised by `synchronize` below
            self.refused[f"{plan.name} for {problem}"] = str(error)
            return False
        self.api.copy(host.__array_interface__["data"][0], pack[Y], host.nbytes, "out", self.stream)
        self.api.synchronize(self.stream)
        bits, infinity = _BITS[problem.dtype]
        values = host[: prod(problem.y) * itemsize(problem.dtype)].view(bits)
        magnitude = values & (np.iinfo(bits).max >> 1)  # without the sign
        return bool((magnitude > infinity).sum() == touched(problem))


def one_image(problem: Convolution) -> Convolution:
    return replace(problem, x=(1, *problem.x[1:]), y=(1, *problem.y[1:]))


def touched(problem: Convolution) -> int:
    """The number of values of y whose window contains more than padding."""
    count = problem.y[0] * problem.y[1]
    for axis in (0, 1):
        window = problem.dilation[axis] * np.arange(problem.w[2 + axis])
        begins = problem.stride[axis] * np.arange(problem.y[2 + axis]) - problem.pad[axis]
        places = begins[:, None] + window
        count *= int(((places >= 0) & (places < problem.x[2 + axis])).any(1).sum())
    return count
