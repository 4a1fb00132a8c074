"""Prove: a schedule is verified on its real offsets before it runs."""
