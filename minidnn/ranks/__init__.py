"""Ranks: several processes, each with a device, that train one net together.

An engine moves bytes between them; the program says when and which (programs/ranks.py).
"""
