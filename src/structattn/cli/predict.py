"""``structattn predict``: answers of transductions, recognizers, transformations and parsers."""

from functools import partial

from structattn.cli.options import STANDARD_INPUT, JsonLines, Run, open_one_run, standard_input_lines
from structattn.cli.output import print_results


def predict(run: Run, json: JsonLines = False) -> None:
    """Answer each line of standard input with one line.

    A transduction answers its input, symbols separated by spaces, by the output; a recognizer a string by accept or
    reject; a transformation a sentence with its task word by the question or the sentence in the present tense; a
    parser the words of a sentence by their bracketed tree.

    Examples:
        structattn predict runs/reverse < inputs.txt
        structattn predict runs/parser evaluation.beam_size=1 < sentences.txt
    """
    from structattn.support.progress import progress
    from structattn.tasks.loaded import in_chunks
    from structattn.tasks.registry import kind_of

    opened = open_one_run(run, decodes=True)
    predictor = kind_of(opened).predictor(opened, 64)
    with progress("Predicting", None, "lines") as advance:
        answers = in_chunks(standard_input_lines(), partial(predictor, path=STANDARD_INPUT, advance=advance))
        print_results(answers, json, lambda each: f"{each.text}\n")
