"""Planned addresses on a GPU: each tensor of a step, and the scratch of each op, lies where it was planned to lie.

`planned_addresses` (api.py) puts an allocator of our own in the place of PyTorch's. The second step of a plan is
recorded: which bytes are asked for and given back, in which order. They are packed like a net's buffers
(memory/packing/), and from then on the step gets these addresses, in one block that all plans share. So what is
reserved is known before: the block, and what the caller keeps (parameters, gradients, the loss).

A step asks for memory in one order, since the schedule's order is fixed and one thread runs it. Addresses are safe for
the reason that PyTorch's own allocator is (cuda_runtime.py): bytes are given back in the order of the schedule, behind
its waits. The C code compares each request with the plan, and never hands out bytes that are in use.

PyTorch's interface for allocators is experimental (experimental.py). With it, torch.cuda.memory_stats and MemPool do
not work, and no step is captured as a graph. No GPU has run this yet: tests run the C code with the host's malloc.
"""
