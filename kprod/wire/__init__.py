"""Bytes to values and back: frames, versions, Produce, the control requests. Does no I/O."""
