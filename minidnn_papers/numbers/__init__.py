"""The numbers that the papers print, or that were measured in their drawings: data, and nothing else."""
