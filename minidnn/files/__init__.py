"""Files that minidnn writes: `replace` writes one whole or not at all, `cache` keeps what takes long to make."""
