"""The command line: one file per verb, with `arguments(parser)` and `run(args)`; main.py lists the verbs."""
