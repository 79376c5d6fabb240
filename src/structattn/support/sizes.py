"""Sizes given in code: at least 1."""


def require_positive(**sizes: int) -> None:
    """Check that every size is at least 1.

    Raises:
        ValueError: one is not; the message has its name.
    """
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(f"{name}={size}; expected at least 1")
