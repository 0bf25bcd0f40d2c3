"""The steps of a record in the caller's thread, before any lock is taken."""
