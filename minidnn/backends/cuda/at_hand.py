"""The GPU at hand as a profile: facts from the driver, and assumptions about its architecture (costs/architectures).

Neither CuPy nor cuDNN is needed, and no memory of the GPU is taken.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from minidnn.backends.cuda.packages import Card, call, find_driver
from minidnn.costs import GPU, gpu
from minidnn.costs.profiles import checked, of_card
from minidnn.costs.roofline import Bytes, Number, PcieSlot

Capability = tuple[int, int]
T = TypeVar("T")

# Compute capability -> operations of a multiprocessor's tensor cores in a cycle. They are products of 16-bit values,
# summed in float32, without sparsity. Sources are NVIDIA's papers on each architecture. V100: 125e12 a second, on 80
# multiprocessors at 1.53 GHz. T4: 65e12. A100: 312e12. RTX 3090: 71e12. Orin: 42e12. RTX 4090: 165e12. H100: 989e12.
# B200: 2250e12. RTX 5090: 209e12.
TENSOR_CORES = {
    (7, 0): 1024, (7, 5): 1024, (8, 0): 2048, (8, 6): 512, (8, 7): 2048, (8, 9): 512, (9, 0): 4096, (10, 0): 8192,
    (12, 0): 512,
}  # fmt: skip
# The first capability with bfloat16, and with TF32, which takes twice as long.
BFLOAT16 = (8, 0)
# Compute capability -> multiply-adds of float32 of a multiprocessor in a cycle.
LANES = {(5, 0): 128, (6, 0): 64, (6, 1): 128, (7, 0): 64, (8, 6): 128}
# Compute capability -> the architecture whose assumptions hold.
ARCHITECTURES = {
    (5, 0): "turing", (8, 0): "ga100", (8, 6): "ampere", (8, 9): "ada", (9, 0): "hopper", (12, 0): "blackwell",
}  # fmt: skip
# Compute capability -> generation of PCI Express, and bytes per second of a pinned copy over 16 lanes of it.
LINKS = {(5, 0): ("3", 12.8e9), (8, 0): ("4", 25e9), (9, 0): ("5", 55e9)}
WITHIN = 0.35  # the part of a memory's bandwidth that a copy within it reaches, which reads and writes
BOTH_WITHIN = 0.6  # the part of that which it keeps beside one the other way, as in orin.yaml
# cuda.h: CUdevice_attribute
_CLOCK, _MULTIPROCESSORS, _INTEGRATED, _MEMORY_CLOCK, _BUS, _L2 = 13, 16, 18, 36, 37, 38
DRIVER = "the driver of this card"
COUNTED = "counted: docs/costs.md says how"


@dataclass(frozen=True)
class CardFacts:
    """A card's facts from the driver: bytes, cycles per second, and the width of its memory bus in bits.

    shared: whether its memory is the CPU's, too"""

    memory: int
    multiprocessors: int
    clock: float
    memory_clock: float
    bus: int
    l2: int
    shared: bool = False


def at_hand(number: int = 0) -> GPU:
    """The profile of this machine's GPU of that number, which is there. Raises CudaUnavailable if there is no GPU."""
    cards = find_driver().cards
    card = next((card for card in cards if card.number == number), cards[0])
    return profile(card, _card_facts(card.number))


def profile(card: Card, facts: CardFacts) -> GPU:
    """The profile of a card: the one that comes with the package, with the memory of this card; else one by its facts.

    A card that shares its memory with the CPU has half of it for the arena, and half for the host."""
    known = of_card(card.name)
    if known is None or facts.shared:
        return _by_facts(card, facts)
    return replace(gpu(known), memory=Bytes(f"{facts.memory}B", DRIVER))


def _by_facts(card: Card, facts: CardFacts) -> GPU:
    bandwidth = 2 * facts.memory_clock * facts.bus / 8
    generation, copies = _latest(LINKS, card.capability)
    over = f"assumed: pinned copies over PCIe {generation} x16; over fewer lanes they take longer"
    link = Number(copies, over)
    if facts.shared:
        link = Number(WITHIN * bandwidth, "assumed: copies within its memory read and write there")
    duplex = {}
    if facts.shared:
        both = Number(BOTH_WITHIN, "assumed: copies both ways share its bandwidth")
        duplex = {"duplex_out": both, "duplex_in": both}
    half = Bytes(f"{facts.memory // 2}B", f"half of what {DRIVER} says")
    cycles = facts.multiprocessors * facts.clock
    product = cycles * _products(card)
    return checked(
        {
            "title": f"{card.name} (compute capability {'.'.join(map(str, card.capability))})",
            "architecture": _latest(ARCHITECTURES, card.capability),
            "memory": half if facts.shared else Bytes(f"{facts.memory}B", DRIVER),
            "host_memory": half if facts.shared else None,
            "multiprocessors": Number(facts.multiprocessors, DRIVER),
            "clock": Number(facts.clock, DRIVER),
            "l2": Bytes(f"{facts.l2}B", DRIVER),
            "memory_bandwidth": Number(bandwidth, "counted: two transfers in each cycle of its memory"),
            "pcie": None if facts.shared else PcieSlot(f"{generation} x16", "assumed, by its compute capability"),
            "link_out": link,
            "link_in": link,
            **duplex,
            "peak_flops": Number(cycles * 2 * _latest(LANES, card.capability), COUNTED),
            "float16_flops": Number(product, COUNTED) if product else None,
            "bfloat16_flops": Number(product, COUNTED) if product and card.capability >= BFLOAT16 else None,
            "tf32_flops": Number(product / 2, COUNTED) if product and card.capability >= BFLOAT16 else None,
        },
        card.name,
    )


def _products(card: Card) -> int:
    """Operations of a multiprocessor's tensor cores in a cycle; 0 if it has none.

    A GeForce card sums in float32 at half the rate of the other cards with its chip."""
    if card.capability < min(TENSOR_CORES) or "GTX" in card.name:
        return 0
    result = _latest(TENSOR_CORES, card.capability)
    geforce = "GeForce" in card.name
    if result > 512:
        return result // 2 if geforce else result
    return result if geforce else 2 * result


def _latest(table: Mapping[Capability, T], capability: Capability) -> T:
    """The entry of the newest capability that is not above this one; that of the oldest if all are."""
    return table[max((known for known in table if known <= capability), default=min(table))]


def _card_facts(number: int) -> CardFacts:
    cuda = ctypes.CDLL("libcuda.so.1")
    device, value, memory = ctypes.c_int(), ctypes.c_int(), ctypes.c_size_t()
    call(cuda.cuDeviceGet, ctypes.byref(device), number)
    call(cuda.cuDeviceTotalMem_v2, ctypes.byref(memory), device)

    def attribute(which: int) -> int:
        call(cuda.cuDeviceGetAttribute, ctypes.byref(value), which, device)
        return value.value

    return CardFacts(
        memory=memory.value,
        multiprocessors=attribute(_MULTIPROCESSORS),
        clock=attribute(_CLOCK) * 1e3,  # the driver counts in kHz
        memory_clock=attribute(_MEMORY_CLOCK) * 1e3,
        bus=attribute(_BUS),
        l2=attribute(_L2),
        shared=bool(attribute(_INTEGRATED)),
    )
