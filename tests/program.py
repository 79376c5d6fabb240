"""The program ``structattn``, run in the process of the tests."""

from typer.testing import CliRunner

from structattn.cli.app import app


def invoke(*words, **options):
    """Run a command; paths and numbers may be among its words."""
    return CliRunner().invoke(app, [str(word) for word in words], **options)


def succeed(*words, **options):
    """Run a command that has to end well."""
    result = invoke(*words, **options)
    assert result.exit_code == 0, result.output
    return result
