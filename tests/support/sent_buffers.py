"""What arrives of buffers that ``send_buffers`` takes."""

from __future__ import annotations

import socket
import threading

from kprod_ext import send_buffers


def sent(ours: socket.socket, theirs: socket.socket, buffers: list[bytes | memoryview]) -> bytes:
    """What arrives of all of them, however many calls it takes; ``ours`` is shut afterwards."""
    ours.setblocking(False)
    found = bytearray()

    def read() -> None:
        while chunk := theirs.recv(1 << 20):
            found.extend(chunk)

    reader = threading.Thread(target=read)
    reader.start()
    while buffers:
        taken = send_buffers(ours.fileno(), buffers)
        while buffers and taken >= len(buffers[0]):
            taken -= len(buffers.pop(0))
        if taken:
            buffers[0] = memoryview(buffers[0])[taken:]
    ours.shutdown(socket.SHUT_WR)
    reader.join()
    return bytes(found)
