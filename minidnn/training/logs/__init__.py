"""The logs of a run that programs read: JSON lines, CSV, and event files of TensorBoard."""
