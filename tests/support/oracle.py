"""A judge of schedules that is quadratic and obviously correct, for tests of memory/proof/verify.py.

It builds the whole happens-before relation as sets, compares every pair of accesses to overlapping bytes, and replays
values cell by cell. It does not look at buffers, the lives of residencies, Allocs or Frees.
"""

from __future__ import annotations

from minidnn.memory.schedule import ALIGNMENT, BLOCK, STREAMS, Compute, Fetch, Offload, Prefetch, Schedule, Stash, Wait

CELL = ALIGNMENT


def broken(s: Schedule) -> str | None:
    """Why a step of this schedule could go wrong under some timing of the streams, or None."""
    before: dict[int, int] = {}  # instruction -> bit set of the instructions that have surely finished when it starts
    now = dict.fromkeys(STREAMS, 0)
    accesses: list[tuple[int, str, int, int, bool]] = []  # (instruction, place, first cell, last cell, writes)

    def cells(residency):
        at = s.offset[residency.buffer]
        return at // CELL, -(-(at + residency.tensor.nbytes) // CELL)

    def ring_cells(slot):
        return slot.at // CELL, -(-(slot.at + slot.tensor.nbytes) // CELL)

    def host_cells(t, place=0):
        at = s.host_offset[t] + place * -(-t.nbytes // CELL) * CELL
        return at // CELL, -(-(at + t.nbytes) // CELL)

    nbytes = {t: t.nbytes for op in s.program.ops for t in op.tensors}
    for x in s.instructions:
        if isinstance(x, Compute) and x.stream == "host":
            if x.op not in s.plan.host_ops or x.algorithm.workspace:
                return f"the host cannot run {x.op.name}"
            if any(t not in s.host_offset for t in x.op.tensors):
                return f"the host has no place for a tensor of {x.op.name}"
        elif isinstance(x, Compute):
            if (len(x.reads), len(x.writes)) != (len(x.op.reads), len(x.op.writes)):
                return f"{x.op.name} lacks a tensor"
            for t, residency in zip((*x.op.reads, *x.op.writes), (*x.reads, *x.writes), strict=True):
                if residency.tensor.nbytes != t.nbytes:
                    return f"{x.op.name} is given {residency.tensor.nbytes} bytes for {t.name}"
            if x.algorithm.workspace > (x.workspace.tensor.nbytes if x.workspace else 0):
                return f"{x.op.name} has too little workspace"
        elif isinstance(x, (Offload, Prefetch)):
            if x.staging_slot is None and x.residency.tensor not in s.host_offset:
                return f"{x.residency.tensor.name} has no place on the host"
            if x.residency.tensor.nbytes != nbytes.get(x.residency.tensor, x.residency.tensor.nbytes):
                return f"{x.residency.tensor.nbytes} bytes of {x.residency.tensor.name} are copied"

    for i, x in enumerate(s.instructions):
        if isinstance(x, Wait):
            if x.on not in before:
                return f"{i} waits for what was not issued"
            now[x.stream] |= before[x.on] | 1 << x.on
        elif isinstance(x, (Compute, Offload, Prefetch, Stash, Fetch)):
            before[i] = now[x.stream]
            now[x.stream] |= 1 << i
            if isinstance(x, Compute) and x.stream == "host":
                accesses += [(i, "host", *host_cells(t), False) for t in x.op.reads]
                accesses += [(i, "host", *host_cells(t), True) for t in x.op.writes]
            elif isinstance(x, Compute):
                space = [x.workspace] if x.workspace else []
                accesses += [(i, "arena", *cells(r), False) for r in x.reads]
                accesses += [(i, "arena", *cells(w), True) for w in (*x.writes, *space)]
            elif isinstance(x, (Stash, Fetch)):
                stash = isinstance(x, Stash)
                # a disk moves all of it
                whole = x.staging_slot.at // CELL, -(-(x.staging_slot.at + x.staging_slot.nbytes) // CELL)
                accesses.append((i, "ring", *whole, not stash))
                accesses.append((i, f"store {x.staging_slot.tensor.name}", 0, 1, stash))
                if x.staging_slot.tensor in s.disk_offset:
                    at = s.disk_offset[x.staging_slot.tensor]
                    accesses.append((i, "disk", at // CELL, (at + x.staging_slot.nbytes) // CELL, stash))
                    if (
                        at % BLOCK
                        or x.staging_slot.at % BLOCK
                        or x.staging_slot.nbytes % BLOCK
                        or at + x.staging_slot.nbytes > s.disk_bytes
                    ):
                        return f"{i} moves no whole blocks, or lies outside the disk's bytes"
            else:
                out = isinstance(x, Offload)
                accesses.append((i, "arena", *cells(x.residency), not out))
                host = (
                    ("host", *host_cells(x.residency.tensor))
                    if x.staging_slot is None
                    else ("ring", *ring_cells(x.staging_slot))
                )
                accesses.append((i, *host, out))
    beside = [host_cells(t, 1) for t in s.program.inputs if t in s.host_offset]  # the next batch is written there
    seen: dict[str, list[tuple[int, int, int]]] = {}  # accesses, by place
    written: dict[str, list[tuple[int, int, int]]] = {}  # those that write
    for i, place, lo, hi, w in accesses:
        seen.setdefault(place, []).append((i, lo, hi))
        if w:
            written.setdefault(place, []).append((i, lo, hi))
        if place == "host" and (lo < 0 or hi * CELL > s.host_bytes):
            return f"{i} is outside the host's bytes"
        if place == "host" and any(lo < hi2 and lo2 < hi for lo2, hi2 in beside):
            return f"{i} touches the next batch"
        if place == "arena" and (lo < 0 or hi * CELL > s.arena + CELL - 1):
            return f"{i} is outside the arena"
        if place == "ring" and (lo < 0 or hi * CELL > s.ring + CELL - 1):
            return f"{i} is outside the ring"
        for j, lo2, hi2 in seen[place] if w else written.get(place, ()):
            if lo < hi2 and lo2 < hi and j < i and not before[i] >> j & 1:
                return f"{i} and {j} race"

    value = {t: ("start", t.name) for t in (*s.program.persistent, *s.program.inputs, *s.program.host_resident)}
    want = {}
    for op in s.program.ops:
        reads = want[op] = tuple(value[t] for t in op.reads)
        for t in op.writes:
            value[t] = (op.name, s.plan.algorithm[op].name, t.name, hash(reads))
    for i, x in enumerate(s.instructions):
        if (
            isinstance(x, (Offload, Prefetch))
            and x.staging_slot is not None
            and x.staging_slot.tensor.nbytes != x.residency.tensor.nbytes
        ):
            return f"{i} copies between places of two sizes"
    size = max((*(hi for *_, hi, _ in accesses), *(host_cells(t)[1] for t in s.host_offset)), default=0) + 1
    arena, host, ring = [None] * size, [None] * size, [None] * size
    store = {}

    def fill(lo, hi, number, memory=arena):
        memory[lo:hi] = [number] * (hi - lo)

    def hold(memory, lo, hi, number):
        """All these cells of a memory."""
        return memory[lo:hi].count(number) == hi - lo

    for t in (*s.program.inputs, *s.program.host_resident):
        if t in s.host_offset:
            fill(*host_cells(t), ("start", t.name), host)
    persistent = {st.tensor: st for b in s.buffers if b.persistent for st in b.residencies}
    for t, st in persistent.items():
        if cells(st)[1] > len(arena):
            return f"{t.name} lies outside the arena"
        fill(*cells(st), ("start", t.name))
    ran = set()
    for i, x in enumerate(s.instructions):
        if isinstance(x, Offload):
            lo, hi = cells(x.residency)
            if not hold(arena, lo, hi, arena[lo]):
                return f"{i} copies out torn bytes"
            if x.staging_slot is None:
                fill(*host_cells(x.residency.tensor), arena[lo], host)
            else:
                fill(*ring_cells(x.staging_slot), arena[lo], ring)
        elif isinstance(x, Prefetch):
            if x.staging_slot is None:
                for c, h in zip(range(*cells(x.residency)), range(*host_cells(x.residency.tensor)), strict=True):
                    arena[c] = host[h]
            else:
                for c, r in zip(range(*cells(x.residency)), range(*ring_cells(x.staging_slot)), strict=True):
                    arena[c] = ring[r]
        elif isinstance(x, Stash):
            lo, hi = ring_cells(x.staging_slot)
            if not hold(ring, lo, hi, ring[lo]):
                return f"{i} stashes torn bytes"
            store[x.staging_slot.tensor] = ring[lo]
        elif isinstance(x, Fetch):
            fill(*ring_cells(x.staging_slot), store.get(x.staging_slot.tensor), ring)
        elif isinstance(x, Compute):
            if x.op not in want:
                return f"{i} {x.op.name} is no op of the program"
            if x.algorithm != s.plan.algorithm[x.op]:
                return f"{i} runs another algorithm"
            if any(t in x.op.reads for t in x.op.writes) and x.op in ran:
                return f"{i} updates twice"
            ran.add(x.op)
            if x.stream == "host":
                for t, number in zip(x.op.reads, want[x.op], strict=True):
                    if not hold(host, *host_cells(t), number):
                        return f"{i} {x.op.name} reads a wrong {t.name} on the host"
                for t in x.op.writes:
                    fill(*host_cells(t), (x.op.name, x.algorithm.name, t.name, hash(want[x.op])), host)
                continue
            for t, r, number in zip(x.op.reads, x.reads, want[x.op], strict=True):
                lo, hi = cells(r)
                if not hold(arena, lo, hi, number):
                    return f"{i} {x.op.name} reads a wrong {t.name}"
            for t, wr in zip(x.op.writes, x.writes, strict=True):
                lo, hi = cells(wr)
                if any(r_t == t and cells(r) != (lo, hi) for r_t, r in zip(x.op.reads, x.reads, strict=True)):
                    return f"{i} {x.op.name} updates {t.name}, which it reads elsewhere"
                for r_t, r in zip(x.op.reads, x.reads, strict=True):
                    lo2, hi2 = cells(r)
                    if r_t != t and lo < hi2 and lo2 < hi and ((r_t, t) not in x.op.inplace or lo != lo2):
                        return f"{i} {x.op.name} overwrites what it reads"
            if x.workspace:
                lo, hi = cells(x.workspace)
                for r in (*x.reads, *x.writes):
                    lo2, hi2 = cells(r)
                    if lo < hi2 and lo2 < hi:
                        return f"{i} workspace over a tensor of its op"
                fill(lo, hi, ("workspace", i))
            for t, wr in zip(x.op.writes, x.writes, strict=True):
                fill(*cells(wr), (x.op.name, x.algorithm.name, t.name, hash(want[x.op])))
    for t in s.program.persistent:
        if t not in persistent:
            return f"{t.name} has no fixed offset"
        lo, hi = cells(persistent[t])
        if not hold(arena, lo, hi, value[t]):
            return f"{t.name} is not final at its fixed offset"
    for t in s.program.outputs:
        if not hold(host, *host_cells(t), value[t]):
            return f"output {t.name} is not on the host"
    for t in s.program.host_resident:
        if t in s.host_offset and not hold(host, *host_cells(t), value[t]):
            return f"{t.name}, which lives on the host, is not final"
    for t in s.program.inputs:
        if t in s.host_offset and not hold(host, *host_cells(t), ("start", t.name)):
            return f"input {t.name} is not what it was"
    return None
