def encode_columns(
    fields: list[tuple[str, int, int, int, int, int, int]], rows: int, prefix: bytes
) -> tuple[bytes, bytes]:
    """Encode each row as ``prefix`` and a record; return the offsets (int64) and all the bytes.

    The first offset is 0, and the others are the ends of the rows. ``fields`` are in the order of
    the schema. Each has a layout ("bits", "integers", "floats", "doubles", "texts" or "plain"), the
    union's branches for null and for a value (or -1), the offset of row 0, and three addresses,
    which must stay valid: of the validity bits (0: all cells are valid), of the values or int64
    offsets, and of the data. Nothing is written for a null without a branch.
    """
