"""The pages of the documentation, and the module of types, that are made from tables of kprod."""
