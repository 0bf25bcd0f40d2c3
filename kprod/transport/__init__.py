"""Byte streams to brokers, and waiting for them: the only place that touches sockets."""
