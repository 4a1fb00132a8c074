"""Training: the solver, the session that holds a loaded net, snapshots, and the feeds of samples."""
