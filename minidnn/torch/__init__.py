"""PyTorch: its modules as nets, and their state back. It is imported only where it is used."""
