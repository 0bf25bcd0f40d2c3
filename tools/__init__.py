"""Programs for those who work on kprod; no part of the package."""
