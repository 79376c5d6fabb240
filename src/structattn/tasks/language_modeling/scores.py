"""Text has scores, but no lower bound: nobody knows its entropy."""

from structattn.data.folders import PreparedFolder


def split_lower_bound(prepared: PreparedFolder, split: str) -> None:
    """No bound is known; the function stands where a formal language has one."""
