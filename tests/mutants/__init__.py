"""Small mistakes made in kprod, one at a time, and whether the tests notice."""
