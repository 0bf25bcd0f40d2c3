"""Which objects the garbage collector walks over, for the other compiled modules."""

cpdef void track(object one) noexcept
cpdef void untrack(object one) noexcept
