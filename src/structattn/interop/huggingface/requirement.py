"""The required version of transformers."""

from importlib import metadata

from structattn.support.imports import install_command

OLDEST = 5


def require_transformers() -> None:
    """Check that a supported version of transformers is installed.

    Raises:
        ImportError: transformers is absent, or older than 5.
    """
    try:
        version = metadata.version("transformers")
    except metadata.PackageNotFoundError:
        raise ImportError(
            f"structattn.interop.huggingface needs transformers {OLDEST} or newer; {install_command('hf')}"
        ) from None
    if int(version.split(".")[0]) < OLDEST:
        raise ImportError(
            f"structattn.interop.huggingface needs transformers {OLDEST} or newer, but {version} is installed; "
            + install_command("hf")
        )
