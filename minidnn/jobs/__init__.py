"""The rules by which `plan` and `train` turn a file and options into the same plans."""
