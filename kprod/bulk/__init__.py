"""Calls that send many records: a compiled loop, its inputs, and one handle for all results."""
