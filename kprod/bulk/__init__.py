"""Many records with one call: the compiled loop, its inputs, and the one handle for all of them."""
