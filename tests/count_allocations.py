"""Run under count_allocations.so: executes prepared calls of every kind and counts what is allocated meanwhile."""

import ctypes
import gc
import sys

import numpy as np

from minidnn.backends.cpu import CpuDevice
from tests.cpu_ops import examples, place


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
    for e in examples():
        for algorithm in device.algorithms(e.op):
            if algorithm.name == "reference":
                continue
            call, _ = place(device, e, algorithm)
            call()  # threads start, lazy things are made
            counter.allocations_arm()
            call()
            call()
            count = counter.allocations_disarm()
            calls += 1
            if count:
                failed += 1
                print(f"{e.name} by {algorithm}: {count} allocations, {counter.allocations_bytes()} B")
    print(f"{calls} prepared calls, {failed} of them allocate 4 KiB or more")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
