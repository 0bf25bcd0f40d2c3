"""Encoding and decoding: frames, versions, Produce, control requests. Does no I/O."""
