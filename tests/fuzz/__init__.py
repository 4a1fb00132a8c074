"""Inputs at random, mostly right and a little wrong, for every door of minidnn through which a stranger's bytes come.

A kind of input is a file of `kinds`: it says how to make a case, which is a file's bytes, and what must hold for it.
`make test` tries some cases of each kind, the same in each run, and all of `corpus`. `make fuzz` tries new ones.
"""
