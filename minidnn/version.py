"""The version of minidnn, in a module of its own: who needs it need not import the package's face, and with it all that
is behind its names."""

__version__ = "0.1.0"
