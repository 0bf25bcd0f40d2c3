"""What happens to a record in the caller's thread, before any lock."""
