"""Peers: memory of other GPUs and of other machines that tensors leave for, as in SuperNeurons' unified tensor pool.

The paper's pool (Wang et al., PPoPP 2018, section 3.3.1) knows the host's memory, that of other GPUs by peer-to-peer
copies, and that of remote machines. Here a peer has bytes and a link of its own. Only profiles of GPUs have peers, so
that plans are simulated and never run.

Peers are filled in their order, and what none has room for goes to the host. The tensors that are away for the shortest
time choose first, since their copies have the least time to hide. Inputs, outputs, host-resident tensors and those of
ops that the host runs stay on the host. A place on a peer holds one tensor a step. All copies of a direction follow one
another, wherever they go, as if the GPU had one engine for each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from minidnn.costs import Peer
from minidnn.memory.lowering.staging import travelling
from minidnn.memory.schedule import Listing, Offload, PeerPlace, aligned
from minidnn.program import Tensor


def with_peers(listing: Listing, peers: Sequence[Peer]) -> Listing:
    """The listing with a place on a peer for each travelling tensor that one has room for."""
    top = dict.fromkeys(peers, 0)
    where: dict[Tensor, PeerPlace] = {}
    for t in _by_absence(listing) if peers else ():
        size = aligned(t.nbytes)
        peer = next((peer for peer in peers if top[peer] + size <= peer.nbytes), None)
        if peer is not None:
            where[t], top[peer] = PeerPlace(peer, top[peer]), top[peer] + size
    return replace(listing, on_peer=where)


def _by_absence(listing: Listing) -> list[Tensor]:
    """The travelling tensors, those first that are away for the shortest time, counted in instructions."""
    end = len(listing.instructions)
    out: dict[Tensor, int] = {}
    absence: dict[Tensor, int] = {}
    for i, x in travelling(listing):
        t = x.residency.tensor
        if isinstance(x, Offload):
            out[t] = i
            absence.setdefault(t, end)
        elif t in out:
            absence[t] = min(absence[t], i - out[t])
    return sorted(absence, key=absence.__getitem__)
