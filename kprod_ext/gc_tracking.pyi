def untrack(one: object) -> None:
    """Let the garbage collector pass over an object of a class that it collects.

    For what is made often and freed by its last reference, as CPython does with tuples of numbers:
    walking over such objects costs more than they do. Until ``track`` is called for it, a ring of
    references through it is never found.
    """

def track(one: object) -> None:
    """Let the collector see an object again; nothing happens if it does."""
