"""A program that runs with tests/support/count_allocations.c loaded and counts large allocations on the cpu device.

It counts them in prepared calls of every kind of op, and in whole training steps that offload and prefetch.
"""

import ctypes
import gc
import sys
from functools import partial

import numpy as np

from minidnn.backends.cpu import CpuDevice
from tests.support.cpu_step import feed, machine
from tests.support.op_examples import bare, examples, place


def main() -> int:
    device = CpuDevice()
    if device.dnnl is None:
        print(device.description)
        return 77
    counter = ctypes.CDLL(None)
    counter.allocations_disarm.restype = counter.allocations_bytes.restype = ctypes.c_long
    counter.allocations_arm()
    np.ones(100_000)
    if counter.allocations_disarm() < 1:
        print("the counter did not see an array of 800 kB")
        return 1
    print("counter works")
    gc.disable()
    failed = calls = 0
    for having in (device, bare()):
        for e in examples():
            for algorithm in having.algorithms(e.op):
                if algorithm.name == "reference" or (having is bare() and algorithm in device.algorithms(e.op)):
                    continue
                call, _ = place(having, e, algorithm)
                failed += allocates(f"{e.name} by {algorithm}", call, counter)
                calls += 1
    print(f"{calls} prepared calls")
    nets = ("lenet", "float32"), ("residual", "float32"), ("inception", "float32"), ("residual", "float16")
    for net, format in nets if device.native else ():  # else the reference's kernels allocate
        for policy in ("baseline:m", "vdnn_all:m"):
            with machine(net, device, policy, format=format) as made:
                made.step("TRAIN")
                feed(made, 1)
                failed += allocates(f"a step of {net} under {policy} in {format}", partial(made.step, "TRAIN"), counter)
    print(f"{failed} of them allocate 4 KiB or more at once")
    return 1 if failed else 0


def allocates(name: str, call, counter) -> bool:
    call()  # the first call starts threads and makes values that are made on demand
    counter.allocations_arm()
    call()
    call()
    count = counter.allocations_disarm()
    if count:
        print(f"{name}: {count} allocations, {counter.allocations_bytes()} B")
    return count > 0


if __name__ == "__main__":
    sys.exit(main())
