"""Obey: from a plan to instructions on streams, the ring between host and device, and offsets in the arena."""
