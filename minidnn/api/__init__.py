"""The commands as functions that return values: `minidnn.plan`, `minidnn.compare` and so on.

A module has two functions: the public one, which takes a net, and `of`, which takes a Job (jobs/job.py) and is
the command's, too. Each returns an Answer (answer.py).
"""
