"""Optional libraries."""

from importlib.util import find_spec

from structattn.support.errors import UsageError
from structattn.support.extras import install_command


def require_modules(extra: str, *names: str) -> None:
    """Check that libraries are installed, without importing them.

    Args:
        extra: the extra of this package that installs them.
        names: of the modules.

    Raises:
        UsageError: one is not installed.
    """
    missing = [name for name in names if find_spec(name) is None]
    if missing:
        raise UsageError(f"{missing[0]} is not installed; {install_command(extra)}")
