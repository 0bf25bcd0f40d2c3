"""Many records with one call: the bulk lane, its inputs, and the one handle for all of them."""
