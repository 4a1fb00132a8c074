"""The program that compute-sanitizer watches: a few steps of a LeNet under vdnn_all, call by call and as a graph."""

from __future__ import annotations

import sys

from benchmarks.gpu_check.place import Place, Rehearsal
from benchmarks.gpu_check.policies import trained
from minidnn.costs import estimate


def main() -> None:
    place = Rehearsal() if "--rehearse" in sys.argv else Place()
    device, net = place.device(), place.net("tests/lenet")
    for graphs in (False, True):
        trained(net, device, "vdnn_all:p", estimate(device), None, graphs)
    print("ended well")


if __name__ == "__main__":
    main()
