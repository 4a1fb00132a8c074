"""Policies that papers proposed, a file each, and what a single one of them needs besides."""
