"""The program that compute-sanitizer watches: each of our own kernels once, by the smallest examples of its kind.

Each tensor has an allocation of its own, so that the tool sees an access beside it. cuDNN's kernels are left out: under
the tool they would take minutes, and they are not ours to mend.
"""

from __future__ import annotations

import sys

import numpy as np

from benchmarks.gpu_check.operations import examples
from benchmarks.gpu_check.place import Place, Rehearsal
from benchmarks.gpu_check.rounding import Precision, examples_in
from minidnn.backends.cuda.device import KINDS, CudaDevice
from minidnn.backends.cuda.runtime import Bytes
from minidnn.program import Algorithm
from tests.support.op_examples import Example

FORMATS = (Precision("float32"), Precision("bfloat16"))


def main() -> None:
    device, runs = (Rehearsal() if "--rehearse" in sys.argv else Place()).device(), 0
    for kind, of in examples(small=True).items():
        for precision in FORMATS if kind in KINDS else ():
            for e in examples_in(precision, of) if precision.of(kind) else ():
                for recipe in device.recipes(e.op):
                    print(f"{e.name} [{recipe.algorithm.name}], {precision}", flush=True)  # the last is to blame
                    once(device, e, recipe.algorithm)
                    runs += 1
    print(f"{runs} runs ended well")


def once(device: CudaDevice, e: Example, algorithm: Algorithm) -> None:
    """Run an example on tensors that have allocations of their own."""
    api, op = device.api, e.op
    bench = device.runtime(0, 0)
    places = {t: Bytes(api.allocate(t.nbytes), t.nbytes) for t in op.tensors}
    workspace = Bytes(api.allocate(algorithm.workspace), algorithm.workspace)
    for t, value in e.data.items():
        raw = np.zeros(t.nbytes, np.uint8)
        device.array(raw, t)[...] = value
        bench.write(places[t], raw)
    device.prepare(op, algorithm, places, workspace)()
    api.synchronize(device.compute)
    for place in (*places.values(), workspace):
        api.release(place.address)
    bench.close()


if __name__ == "__main__":
    main()
