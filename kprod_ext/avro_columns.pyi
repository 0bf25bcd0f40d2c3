def encode_columns(
    fields: list[tuple[str, int, int, int, int, int, int]], rows: int, prefix: bytes
) -> tuple[bytes, bytes]:
    """``prefix`` and a record for each row: where each ends (int64, a 0 before them), and all.

    ``fields`` in the order of the schema: layout ("bits", "integers", "floats", "doubles", "texts"
    or "plain"), the union's branches for null and for a value or -1, offset of row 0, and the
    addresses of the bits of valid cells (0: all are), of the values or int64 offsets, and of the
    data, which stay valid meanwhile. Nothing is written for a null that has no branch.
    """
