"""``structattn prepare``: prepare a language, a transduction, a transformation, text, parallel text, or trees."""

import typer

from structattn.cli.help import add_command
from structattn.cli.preparation.generated import formal_language, transduction, transformation
from structattn.cli.preparation.parallel import parallel
from structattn.cli.preparation.text import text
from structattn.cli.preparation.trees import trees

app = typer.Typer(
    no_args_is_help=True,
    help="Prepare data: a formal language, a transduction, a transformation, text, parallel text, or trees.",
)
for _command in (formal_language, transduction, transformation, text, parallel, trees):
    add_command(app, _command.__name__.replace("_", "-"), _command)
