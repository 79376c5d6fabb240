"""Whether memory ran out, whoever says so."""


def memory_ran_out(error: BaseException) -> bool:
    """Of Python's error and of torch's two, of which that of a processor is a plain RuntimeError."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":  # torch's, of a GPU
        return True
    return isinstance(error, RuntimeError) and "can't allocate memory" in str(error)
