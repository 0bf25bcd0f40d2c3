"""Converts Arrow columns, and rows, to what ``send_arrow`` and ``send`` take. Needs pyarrow."""
