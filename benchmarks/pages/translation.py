"""Translation: the speed of beam search and of training."""

from typing import Any

from pages.tables import results_of, table


def translation_speed(found: dict[str, Any]) -> str:
    """Return a table of beam search with and without a decoder state."""
    rows = found["results"]
    base = rows[0]["sentences/s"]
    descriptions = {
        "incremental": "incremental decoding",
        "full prefix": "prefix recomputed at each step",
        "full prefix, batch size 1": "prefix recomputed, one sentence at a time",
    }
    body = [
        (row["system"], descriptions[row["method"]], f"{row['sentences/s']:.1f}", f"{row['sentences/s'] / base:.2f}")
        for row in rows
    ]
    return table(("system", "method", "sentences/s", f"relative to {rows[0]['system']}"), body)


def decoding_peers(found: dict[str, Any]) -> str:
    """Return a table of beam search compared with CTranslate2 on the same weights."""
    rows = sorted(found["results"], key=lambda row: (row["size"], row["beam"]))
    with_memory = "mib_per_sentence" in rows[0]
    first = {(row["size"], row["beam"]): row for row in rows if row["method"] == "CTranslate2 float32"}
    body = [
        (
            row["size"],
            str(row["beam"]),
            row["method"],
            f"{row['sentences_per_second']:.1f}",
            f"{min(row['all']):.1f} to {max(row['all']):.1f}",
            f"{row['sentences_per_second'] / first[row['size'], row['beam']]['sentences_per_second']:.2f}",
            f"{row['equal_to_ctranslate2_float32']:.0%}" if row["exported"] else "",
            *((f"{row['mib_per_sentence']:.1f}",) if with_memory else ()),
        )
        for row in rows
    ]
    header = ("size", "beam", "method", "sentences/s", "range", "of CTranslate2 float32", "equal translations")
    return table((*header, *(("MiB per sentence",) if with_memory else ())), body)


def decoding_mechanisms(found: dict[str, Any]) -> str:
    """Return a table of beam search with decoders of other mechanisms, relative to base."""
    body = [
        (
            row["decoder"],
            str(row["beam"]),
            "{} of {}".format(*row["sublayers_in_kernel"]),
            f"{row['kernel']:.2f}",
            f"{row['modules']:.2f}",
        )
        for row in found["results"]
    ]
    header = ("decoder", "beam", "sublayers in kernel calls", "speed, relative to base", "module by module")
    return f"""`OMP_NUM_THREADS=1 python benchmarks/decoding_mechanisms.py --turns {found["turns"]}`: the same sentences
and sizes (d 288), other mechanisms in the decoder, which run in the same kernel or, if it does not have them, as
modules between kernel calls. The last column is the speed if all sublayers run as modules.

{table(header, body)}
"""


def efficiency(found: dict[str, Any]) -> str:
    """Return a table of the translation speed and the largest training batch of each system."""
    rows = found["results"]
    body = [
        (
            row["system"],
            f"{row['sentences/s']:.1f} ± {row['deviation']:.1f}",
            f"{row['sentences/s'] / rows[0]['sentences/s']:.2f}",
            f"{row['tokens']:,}",
            f"{row['tokens'] / rows[0]['tokens']:.2f}",
        )
        for row in rows
    ]
    batch = f"largest training batch in {found['memory_gib']:g} GiB (tokens)"
    return table(("system", "sentences/s", "relative to base", batch, "relative to base"), body)


def section() -> str:
    """Return the section on translation."""
    translations, cost, peers = (
        results_of("decoding"),
        results_of("translation_efficiency"),
        results_of("decoding_peers"),
    )
    return f"""## Translation

`OMP_NUM_THREADS=1 python benchmarks/decoding.py --repeats {
        translations["repeats"]
    } --output benchmarks/results/decoding.json`:
{translations["sentences"]:,} sentences, a beam of {
        translations["beam"]
    }, one thread; the systems of You et al. (2020) at their sizes, with random weights and given
target lengths, module by module. Medians of {
        translations["repeats"]
    } runs after a warm-up run. The paper reports hc-sa 6 % and
sh-x 30 % faster than base, in a different configuration: trained models of the large sizes, a GPU, batches of 256
sentences and a search for the end.

{translation_speed(translations)}
`OMP_NUM_THREADS=1 python benchmarks/decoding_peers.py --turns {peers["turns"]} --memory --output
benchmarks/results/decoding_peers.json`, on {peers["processor"]} with other load: beam search compared with
CTranslate2 {peers["ctranslate2"]} on the same random weights; 64 sources of 28 tokens are translated into 28 tokens,
vocabulary 10,000. The methods take turns; sentences per second of processor time, medians.

{decoding_peers(peers)}
All layers of a step run in one kernel call, in each system. MiB per sentence: how much the resident
memory of a process grows at most during the first batch, divided by its 64 sentences. In a profile of base at d 288 and
a beam of 1, the layers of the decoder take about two fifths of the time, of which a third is attention to cached rows,
and the products of the encoder and the output another third.

{decoding_mechanisms(results_of("decoding_mechanisms"))}
`OMP_NUM_THREADS=1 python benchmarks/translation_efficiency.py RUN ...`: runs of `table_2_small.yaml`, trained for
two epochs, on {
        cost[
            "sentences"
        ]:,} sentences of Multi30k's test set in batches of 256, with the settings of the runs (a beam of 4;
bfloat16 in training only). Means of {
        cost["timed"]
    } runs. Batch sizes count source and target tokens, including padding.

{efficiency(cost)}
"""
