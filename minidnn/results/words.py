"""The meaning of each field of the results. A name means the same in all documents.

The meaning of a name that one record has stands beside its field, that of a name which several have here: once.

Bytes end in `_bytes` and are whole numbers. Seconds end in `_seconds`. Rates are per second.
"""

from __future__ import annotations

from minidnn.results.record import Record

WORDS = {
    # every document
    "version": "the version of this form; it grows when a field goes, or changes its meaning",
    "kind": "what the document holds",
    "rows": "the rows of the table",
    # what was asked
    "net": "the name of the net",
    "batch": "samples of one batch",
    "size": "pixels of a side of the images",
    "tokens": "tokens of a sample; null for a net without tokens",
    "depth": "layers, as the net's name counts them",
    "format": "the number format that the net computes in",
    "device": "the name of the device, or of the profile of the GPU that was simulated",
    "description": "the libraries and threads of the device, on which results depend; null for a profile",
    "policy": "the memory policy",
    "ranks": "devices that train together; null without ranks",
    "budget_bytes": "bytes of the device that may be used",
    "host_budget_bytes": "bytes of the host that tensors off the device may use",
    "place": "the line of the module's source that it comes from; null if it is not known",
    # memory
    "peak_bytes": "bytes of the arena, which all programs of the net share: the device allocates it, and a budget "
    "limits it. Where nothing fits: the least that was found",
    "arena_bytes": "bytes of the arena that the training program takes",
    "live_peak_bytes": "the most bytes that live at once in the training program",
    "offload_bytes": "bytes that are copied to the host in a step, without outputs",
    "moved_bytes": "bytes that are copied out and back in a step, without inputs and outputs",
    "host_bytes": "bytes of the host's memory that a plan takes: pinned and ordinary ones",
    "pinned_bytes": "bytes of pinned memory on the host",
    "pageable_bytes": "bytes of ordinary memory on the host that are reserved behind a ring",
    "undo_bytes": "bytes of a disk that keep what a step changes as it was before, in case the disk fails",
    "on_disk_bytes": "bytes of a disk that are reserved behind the host's memory, including those for undo",
    "workspace_bytes": "bytes of workspace that the algorithm needs",
    "smallest_budget_bytes": "the smallest budget that the refused policy could keep",
    "smallest_host_budget_bytes": "the smallest host budget that the refused policy could keep",
    "beside_arena_bytes": "bytes that the card holds beside the arena; null where the arena is all",
    "memory_bytes": "bytes of the device's memory",
    "least_bytes": "lower bound on the bytes of any plan of ops as a whole or in the parts that best tries",
    "reached_bytes": "the least bytes for which a plan was found",
    # time
    "step_seconds": "seconds of one step: the median of the timed steps; predicted if no step was run",
    "timed_steps": "steps that were timed",
    "stall_seconds": "seconds of a step in which compute waits for copies or communications",
    "exposed_seconds": "seconds of communication in an iteration that compute does not hide",
    "net_seconds": "seconds of an iteration in which communications are under way",
    "sent_bytes": "bytes that the first rank receives in exchanges and sends in gathers, per iteration: the maximum",
    "bound_seconds": "lower bound on the step of any plan that keeps the bytes and runs all ops on the device, in the "
    "same parts; or null",
    "gap": "the predicted seconds above the bound, as a fraction of the bound",
    "free_seconds": "seconds of a step on this GPU with unlimited memory",
    "samples_per_second": "training samples per second, over all ranks",
    "op_seconds": "seconds of the op alone; of a sum, of all ops",
    # plans
    "fits": "whether the budgets are kept",
    "why": "why it was refused, or failed, in words",
    "recomputed_ops": "ops that run again in a step",
    "file": "the file that was written",
    # show
    "phase": "the phase of the net: TRAIN or TEST, a forward pass alone",
    "parameters": "how many numbers the layer learns; shared ones count once",
    "parameter_bytes": "bytes of these in float32",
    "top_bytes": "bytes of the tops, before a plan shares any",
    # a refusal
    "program": "the program: TRAIN, TEST, ...",
    "op": "the name of the op",
    "ops": "how many executions the step has",
    "algorithm": "the name of the op's algorithm",
    # frontier, cards
    "gpu": "the name of the GPU's profile",
    "title": "the name of the GPU in full",
    # board
    "plan_seconds": "seconds of a processor that planning took",
    "cells": "the number of cells: a policy on a net and a GPU within one budget",
    # search
    "multiple_of": "only batches that are multiples of this were tried",
    # tune
    "efficiency": "the speed of N ranks over N times that of one with the same batch",
    # time, profile
    "layer": "the name of the layer",
    "flops": "operations on one batch, a multiplication and an addition being two; of a layer, those of forward",
    "bandwidth_out": "bytes per second from the device to the host",
    "bandwidth_in": "bytes per second from the host to the device",
    "beside_compute": "the rates of copies while an op runs",
    "cache": "the file that keeps measurements",
    # devices
    "name": "its name",
    "net_bandwidth": "bytes per second that a rank sends, and receives",
    "message_seconds": "seconds of a message without bytes",
    "gap_seconds": "seconds between two messages that a rank sends in a row",
    # train, test, predict
    "iteration": "the iteration",
    "loss": "the loss of the step",
    "lr": "the learning rate of the step",
    "seed": "the seed of weights, data order and dropout",
    "outputs": "the averages of the test net's outputs, by name",
    "path": "the file",
    "test_seconds": "seconds of the test",
    "samples": "how many samples there are; of a test, those that were shown",
    "unused": "weights of the file that the net lacks",
    "confusion": "which classes the net mistakes for which; null unless asked for",
    "class_names": "the names of the classes, in their order; null if they have none",
}  # fmt: skip


def meaning(model: type[Record], name: str) -> str:
    """The meaning of a field of this kind of records."""
    return model.model_fields[name].description or WORDS[name]
