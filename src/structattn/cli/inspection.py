"""``structattn inspect``: what a run folder says about its run, and which words its embeddings bring together."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from structattn.cli.options import (
    Json,
    Runs,
    check_output_files,
    distinct_run_paths,
    open_one_run,
    open_runs,
    overrides_of,
)
from structattn.cli.output import literal, numbers_table, print_json, print_line, print_table
from structattn.support.errors import UsageError

if TYPE_CHECKING:
    from structattn.explorer.ablation import Ablation
    from structattn.explorer.word_embeddings import Neighbour
    from structattn.loading.inspection import Inspection
    from structattn.loading.trained_run import TrainedRun
    from structattn.loading.word_vectors import WordVectors
    from structattn.metrics.neighbours import Agreement

Side = Literal["source", "target"]
Stream = Literal["syntactic", "semantic"]


def inspect(
    runs: Runs,
    neighbours: Annotated[
        list[str] | None, typer.Option(metavar="WORD", help="Print the words nearest to this one; repeatable.")
    ] = None,
    count: Annotated[int | None, typer.Option(min=1, metavar="N", help="Neighbours of a word.  [default: 10]")] = None,
    tags: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="File of CoNLL-2000: how often have ten neighbours the part of speech?"),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write a t-SNE plot (.png, .svg or .pdf); needs the extra embeddings."),
    ] = None,
    export: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the embeddings in the text format of word2vec.")
    ] = None,
    side: Annotated[Side | None, typer.Option(help="Embeddings of a translation run.  [default: source]")] = None,
    stream: Annotated[Stream | None, typer.Option(help="Stream of a two-stream model.  [default: both]")] = None,
    ablate: Annotated[
        bool, typer.Option("--ablate", help="Show how much validation loses without each head and each sublayer.")
    ] = False,
    json: Json = False,
) -> None:
    """Show how runs ended, their settings that differ from the defaults, scores, sizes and data.

    A run may still be in progress, and its data need not be there. With --neighbours, --tags, --plot or --export, show
    instead the nearest words of one run, by cosine similarity of input embeddings, in each stream of its model. The
    10,000 most frequent words of the training text that are one token are compared. With --ablate, show instead the
    validation cross-entropy without each head and each sublayer of a transformer, and write it to analyses/.

    Examples:
        structattn inspect runs/stack runs/plain
        structattn inspect runs/de-en --neighbours man --neighbours king
        structattn inspect runs/de-en --tags conll2000/train.txt --plot words.png
        structattn inspect runs/stack --ablate
    """
    embeddings = {"--neighbours": neighbours, "--tags": tags, "--plot": plot, "--export": export}
    of_embeddings = next((name for name, value in embeddings.items() if value), None)
    if ablate and of_embeddings:
        raise UsageError(f"--ablate and {of_embeddings} show different things; expected one of them")
    if count is not None and not neighbours:
        raise UsageError("--count needs --neighbours")
    if of_embeddings:
        check_output_files({"--plot": plot, "--export": export}, {"--tags": tags})
        _show_embeddings(runs, neighbours or [], count or 10, tags, (side, stream), (plot, export), json)
        return
    given = {"--side": side, "--stream": stream}
    if others := [name for name, value in given.items() if value is not None]:
        raise UsageError(f"{others[0]} needs --neighbours, --tags, --plot or --export")
    if ablate:
        _show_ablations(runs, json)
        return
    if overrides_of(runs) != (None, {}):
        raise UsageError("settings are shown as they are in the run folders; expected run folders alone")
    from structattn.loading.inspection import inspect_run

    inspections = [inspect_run(run) for run in distinct_run_paths(runs)]
    if json:
        print_json(inspections)
        return
    for each in inspections:
        _print_run(each)


def _print_run(inspection: "Inspection") -> None:
    from rich.table import Table

    table = Table(title=literal(str(inspection.run)), title_justify="left", show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    sections = {
        "run": _summary(inspection),
        "settings that differ from the defaults": {
            name: value if isinstance(value, str) else dumps(value) for name, value in inspection.settings.items()
        },
        "parameters": {"all": f"{inspection.parameters:,}"}
        | {f"  {name}": f"{count:,}" for name, count in (inspection.parts or {}).items()},
        "data": _data(inspection.data),
        "scores": {
            f"{split} {name}": f"{value:.4f}"
            for split, scores in inspection.scores.items()
            for name, value in scores.items()
        }
        or {"none": "see structattn evaluate"},
    }
    for heading, rows in sections.items():
        table.add_row(literal(heading), "", style="bold")
        for index, (name, value) in enumerate(rows.items(), start=1):
            table.add_row(literal(f"  {name}"), literal(str(value)), end_section=index == len(rows))
    print_table(table)


def _summary(inspection: "Inspection") -> dict[str, str]:
    ended = "not ended"
    if inspection.ended:
        epochs = "1 epoch" if inspection.epoch == 1 else f"{inspection.epoch} epochs"
        ended = f"{inspection.ended}, after {inspection.update:,} updates and {epochs}"
    elif inspection.checkpoints:
        ended += f"; its newest checkpoint is that of update {inspection.update:,}"
    return {
        "task, model": f"{inspection.task}, {inspection.model}",
        "ended": ended,
        "best validation": "unknown" if inspection.best_update is None else f"after update {inspection.best_update:,}",
        "time": "unknown" if inspection.seconds is None else f"{inspection.seconds:,.0f} s on {inspection.device}",
        "checkpoints": ", ".join(map(str, inspection.checkpoints)) or "none",
        "version": inspection.version,
        **{f"plugin {each['name']}": f"SHA-256 {each['sha256']}" for each in inspection.plugins},
    }


def _data(data: Mapping[str, Any]) -> dict[str, str]:
    splits = {
        f"  {name}": f"{counts['sequences']:,} sequences, {counts['tokens']:,} tokens"
        for name, counts in data.get("splits", {}).items()
    }
    sources = {f"  {path}": f"SHA-256 {digest}" for path, digest in data.get("sources", {}).items()}
    state = {"state": data["state"]} if "state" in data else {}
    return {"path": data["path"], "kind": data["kind"], "digest": data["digest"]} | state | splits | sources


def _show_ablations(runs: Sequence[str], json: bool) -> None:
    from structattn.explorer.ablation import ablate, write_ablation
    from structattn.explorer.interventions import layers_by_side

    opened, results = list(open_runs(runs, writes="analyses")), []
    for run in opened:
        layers_by_side(run.model)  # refuses other models before anything is scored
    for run in opened:
        ablation = ablate(run)
        write_ablation(run, ablation)
        results.append((run.run_dir, ablation))
        if not json:
            _print_ablation(run, ablation)
    if json:
        print_json([{"run": folder, "ablation": ablation} for folder, ablation in results])


def _print_ablation(run: "TrainedRun", ablation: "Ablation") -> None:
    from structattn.explorer.ablation_report import ablation_rows, headings, most_heads
    from structattn.settings.run import unit_of_loss

    content = asdict(ablation)
    most = most_heads(content["sublayers"])
    caption = (
        f"cross-entropy {ablation.cross_entropy:.4f} nats per {unit_of_loss(run.settings.task)}; columns: its increase "
        "without the whole sublayer, and without each of its heads"
    )
    table = numbers_table(["sublayer"], headings(most), caption, title=f"{run.run_dir}, validation")
    for name, rises in ablation_rows(content, most):
        table.add_row(literal(name), *rises)
    print_table(table)


def _show_embeddings(
    runs: Sequence[str],
    words: Sequence[str],
    count: int,
    tags: Path | None,
    table: tuple[Side | None, Stream | None],
    files: tuple[Path | None, Path | None],
    json: bool,
) -> None:
    """Print neighbours and their agreement with parts of speech, and write a plot and an export."""
    from structattn.explorer import word_embeddings as embeddings
    from structattn.loading.word_vectors import word_vectors
    from structattn.support.imports import require_modules

    (side, stream), (plot, export) = table, files
    if plot is not None:
        require_modules("embeddings", "matplotlib", "sklearn")
        from structattn.explorer.embedding_plot import require_format, write_embedding_plot

        require_format(plot)
    run = open_one_run(runs, writes=None if tags is None else "analyses")
    every = word_vectors(run, side, also=words)
    vectors = _chosen(every, stream)
    if export is not None and len(vectors.streams) > 1:
        raise UsageError("--export writes one table; expected --stream syntactic or --stream semantic")
    tag_of = {} if tags is None else embeddings.read_word_tags(tags)
    nearest = {word: embeddings.neighbours_of(vectors, word, count) for word in words}
    agreement: dict[str | None, Agreement] = {}
    if tags is not None:
        of_all = embeddings.tag_agreement(every, tag_of)
        embeddings.write_agreement(run, side or "source", of_all)
        agreement = {name: of_all[name] for name in vectors.streams}
    if json:
        neighbours = {word: _by_stream(each) for word, each in nearest.items()}
        print_json({"neighbours": neighbours, "agreement": _by_stream(agreement) if agreement else None})
    else:
        for word, neighbours_of_word in nearest.items():
            _print_neighbours(word, neighbours_of_word)
        _print_agreement(agreement)
    if plot is not None:
        points = {name: embeddings.t_sne(each, run.settings.seed) for name, each in vectors.streams.items()}
        write_embedding_plot(plot, points, [tag_of.get(word) for word in vectors.words])
    if export is not None:
        embeddings.write_word2vec(export, vectors.words, *vectors.streams.values())
    for path in (plot, export):
        if path is not None:
            print_line(str(path), error=json)


def _chosen(vectors: "WordVectors", stream: Stream | None) -> "WordVectors":
    if stream is None:
        return vectors
    if stream not in vectors.streams:
        raise UsageError(f"--stream {stream} is for two-stream models; this one has a single stream")
    return replace(vectors, streams={stream: vectors.streams[stream]})


def _by_stream(streams: Mapping[str | None, Any]) -> Any:
    """Return the same with the streams named; what has a single stream loses that level."""
    return streams[None] if None in streams else {str(stream): each for stream, each in streams.items()}


def _print_neighbours(word: str, neighbours: "Mapping[str | None, Sequence[Neighbour]]") -> None:
    table = numbers_table([], [], title=word)
    for stream in neighbours:
        table.add_column(stream or "word", overflow="fold")
        table.add_column("cosine", justify="right")
    for row in zip(*neighbours.values(), strict=True):
        table.add_row(*[cell for each in row for cell in (literal(each.word), f"{each.similarity:.3f}")])
    print_table(table)


def _print_agreement(agreement: "Mapping[str | None, Agreement]") -> None:
    for stream, each in agreement.items():
        name = "" if stream is None else f"{stream} stream: "
        print_line(
            f"{name}{each.value:.1%} of the ten nearest neighbours of {each.count:,} words have the part of speech of "
            f"the word (at random: {each.chance:.1%})"
        )
