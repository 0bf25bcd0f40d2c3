"""Transactions as applications call them, and the offsets that move with them."""
