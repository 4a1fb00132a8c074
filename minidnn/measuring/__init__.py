"""Seconds of ops, of whole steps and of copies on the device at hand, and the spread of a median."""
