"""Whether memory ran out, whoever says so."""


def memory_ran_out(error: BaseException) -> bool:
    """Of Python's error and of torch's, which is a plain RuntimeError on a processor."""
    told = str(error).lower()
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and ("can't allocate memory" in told or "out of memory" in told)
    )
