"""What several policies use: bytes and seconds of a plan, algorithms, runs again, orders, a model of swapping."""
