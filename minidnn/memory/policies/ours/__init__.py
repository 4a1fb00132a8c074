"""Policies of minidnn's own."""
