"""Nets: read from YAML or defined in Python, and turned into the graph of one phase."""
