"""The site's own extensions of Sphinx."""
