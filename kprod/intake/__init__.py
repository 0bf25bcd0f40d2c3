"""The way of a record in the caller's thread, before any lock."""
