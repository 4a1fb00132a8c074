"""What the site needs beside Sphinx and MyST."""
