"""Log-probabilities of given texts against sums over single steps, for pairs, language models and ensembles."""

import math

import pytest
import torch

from structattn.decoding import (
    BeamSearch,
    Ensemble,
    beam_search,
    greedy_search,
    pad_sequences,
    sample,
    score_pairs,
    score_texts,
    start_continuation,
    start_translation,
)
from structattn.models.builders.layers import VocabularySpec
from structattn.models.builders.models import build_language_model
from structattn.settings.transformer import LanguageModelSettings

TEXTS = [(3, 4, 2), (2,), (), (5, 5, 5, 5), (4, 3, 2)]


@pytest.fixture
def language_model():
    def build(seed=0, layers="1.superposition-3"):
        torch.manual_seed(seed)
        settings = LanguageModelSettings(layers=layers, d_model=8, d_ff=12, num_heads=2, init_scale=1.0)
        return build_language_model(settings, VocabularySpec(7)).double().eval()

    return build


@torch.no_grad()
def step_by_step(model, state, text):
    scores, read = [], 1
    for token in text:
        logits, state = model.step(torch.tensor([read]), state)
        scores.append(logits.log_softmax(-1)[0, token - 2].item())
        read = token
    return scores


def assert_scored(scores, expected):
    assert scores.lengths.tolist() == [len(text) for text in TEXTS]
    for row, tokens, total in zip(scores.token_log_probs, expected, scores.log_probs.tolist(), strict=True):
        assert row[: len(tokens)].tolist() == pytest.approx(tokens, rel=1e-9)
        assert not row[len(tokens) :].any()
        assert total == pytest.approx(sum(tokens), rel=1e-9)


@pytest.mark.parametrize("mechanism", ["softmax", "nondeterministic", "stack_pointer", "gaussian_across", "two_stream"])
def test_pairs_are_scored_as_step_by_step(translator, sources, mechanism):
    model, source = translator(mechanism, 5), sources(5)
    ids, lengths = pad_sequences(source)
    starts = [model.initial_state(torch.tensor([of_one])) for of_one in source]
    expected = [step_by_step(model, state, text) for state, text in zip(starts, TEXTS, strict=True)]
    assert_scored(score_pairs(model, ids, TEXTS, lengths), expected)


def test_texts_are_scored_as_step_by_step(language_model):
    model = language_model()
    assert_scored(score_texts(model, TEXTS), [step_by_step(model, model.initial_state(1), text) for text in TEXTS])


def test_nothing_to_score(language_model, translator):
    assert score_texts(language_model(), [(), ()]).log_probs.tolist() == [0.0, 0.0]
    assert score_texts(language_model(), []).log_probs.shape == (0,)
    ids, lengths = pad_sequences([[2], [3, 2]])
    assert score_pairs(translator("softmax"), ids, [(), ()], lengths).log_probs.tolist() == [0.0, 0.0]


@pytest.mark.parametrize("text", [(3, 0, 2), (1, 3), (3, 2, 3)])
def test_texts_with_misplaced_special_tokens_are_refused(language_model, text):
    with pytest.raises(ValueError, match=f"text 1 is \\[{text[0]}, .*expected no <pad>"):
        score_texts(language_model(), [(3,), text])


def test_one_text_for_each_source_is_required(translator):
    with pytest.raises(ValueError, match="1 texts for 2 sources"):
        score_pairs(translator("softmax"), torch.tensor([[2], [2]]), [(3,)])


@pytest.mark.parametrize("average", ["probabilities", "log_probabilities"])
def test_an_ensemble_of_one_model_is_the_model(translator, sources, average):
    model, (ids, lengths) = translator("superposition", 5), pad_sequences(sources(4))
    alone = start_translation(model, ids, lengths)
    for count in (1, 3):
        ensemble = Ensemble([model] * count, average)
        start = ensemble.start([alone] * count)
        for search in (BeamSearch(3), BeamSearch(1)):
            expected = beam_search(model, alone, 6, search)
            for (a,), (b,) in zip(beam_search(ensemble, start, 6, search), expected, strict=True):
                assert a.tokens == b.tokens
                assert a.score == pytest.approx(b.score, rel=1e-9)
        scores = score_pairs(ensemble, ids, TEXTS[:4], lengths).token_log_probs
        torch.testing.assert_close(
            scores, score_pairs(model, ids, TEXTS[:4], lengths).token_log_probs, rtol=1e-9, atol=1e-12
        )


def test_ensembles_average_probabilities_or_log_probabilities(language_model):
    models = [language_model(0), language_model(1, "1"), language_model(2)]
    tokens = torch.tensor([[1, 3, 4, 5], [1, 5, 3, 3]])
    predictions = torch.stack([model(tokens).softmax(-1) for model in models])
    arithmetic, geometric = predictions.mean(0), predictions.log().mean(0).softmax(-1)
    for average, expected in (("probabilities", arithmetic), ("log_probabilities", geometric)):
        ensemble = Ensemble(models, average)
        torch.testing.assert_close(ensemble(tokens).softmax(-1), expected, rtol=1e-9, atol=1e-12)
        start = ensemble.start([start_continuation(model, tokens) for model in models])
        logits, _ = ensemble.step(start.tokens, start.state)
        torch.testing.assert_close(logits.softmax(-1), expected[:, -1], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("average", ["probabilities", "log_probabilities"])
def test_an_ensemble_returns_log_probabilities(language_model, average):
    """Their exponentials sum to 1, for whole sequences and for steps; equal models give those of each."""
    models, tokens = [language_model(seed) for seed in range(3)], torch.tensor([[1, 3, 4, 5], [1, 5, 3, 3]])
    ensemble = Ensemble(models, average)
    start = ensemble.start([start_continuation(model, tokens) for model in models])
    step, _ = ensemble.step(start.tokens, start.state)
    for found in (ensemble(tokens), step):
        torch.testing.assert_close(found.logsumexp(-1), torch.zeros_like(found[..., 0]), rtol=0, atol=1e-12)
    (model, *_), equal = models, Ensemble(models[:1] * 3, average)
    torch.testing.assert_close(equal(tokens), model(tokens).log_softmax(-1), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("average", ["probabilities", "log_probabilities"])
def test_classes_that_all_models_of_an_ensemble_forbid_stay_forbidden(language_model, average):
    ensemble = Ensemble([language_model(0), language_model(1)], average)
    logits = torch.tensor([[0.0, 1.0, -math.inf], [-math.inf] * 3])
    found = ensemble.mean([logits, logits + 5])
    torch.testing.assert_close(found[0], logits[0].log_softmax(-1))
    assert (found[1] == -math.inf).all()
    found = ensemble.mean([logits, torch.zeros(2, 3)])[1].exp().sum()
    assert found == pytest.approx({"probabilities": 0.5, "log_probabilities": 0.0}[average])


def test_the_beam_of_an_ensemble_is_scored_by_its_whole_sequences(translator, sources):
    models = [translator(mechanism, 5) for mechanism in ("softmax", "two_stream", "stack_pointer")]
    ids, lengths = pad_sequences(sources(4))
    for average in ("probabilities", "log_probabilities"):
        ensemble = Ensemble(models, average)
        start = ensemble.start([start_translation(model, ids, lengths) for model in models])
        best = [hypotheses[0] for hypotheses in beam_search(ensemble, start, 6, BeamSearch(3))]
        scores = score_pairs(ensemble, ids, [hypothesis.tokens for hypothesis in best], lengths).log_probs
        assert [hypothesis.score for hypothesis in best] == pytest.approx(scores.tolist(), rel=1e-9)


def test_invalid_ensembles_are_refused(language_model):
    for arguments in (([],), ([language_model()], "median")):
        with pytest.raises(ValueError, match="expected"):
            Ensemble(*arguments)
    with pytest.raises(ValueError, match="0 starts for 1 models"):
        Ensemble([language_model()]).start([])


def test_an_ensemble_ends_a_text_where_each_of_its_models_would(written):
    model = written(lambda sentence, step, token: [-math.inf] * 6 if step else [0.0, 0.0, 0.0, 3.0, 0.0, 0.0])
    ensemble = Ensemble([model, model])
    (alone,), (together,) = (
        greedy_search(model, model.start(), 5),
        greedy_search(ensemble, ensemble.start([model.start()] * 2), 5),
    )
    assert together.tokens == alone.tokens == (5,)


def test_a_continuation_starts_after_its_prompt(language_model):
    model, prompts = language_model(), torch.tensor([[1, 3, 4], [1, 5, 5]])
    after = greedy_search(model, start_continuation(model, prompts), 4)
    forced = greedy_search(model, start_continuation(model, prompts[:, :1]), 6, prefixes=prompts[:, 1:].tolist())
    whole = score_texts(
        model, [(*prompt[1:], *text.tokens) for prompt, text in zip(prompts.tolist(), after, strict=True)]
    )
    for index, (text, with_prompt) in enumerate(zip(after, forced, strict=True)):
        assert with_prompt.tokens == (*prompts[index, 1:].tolist(), *text.tokens)
        assert text.log_probability == pytest.approx(whole.token_log_probs[index, 2:].sum().item(), rel=1e-9)
        assert with_prompt.log_probability == pytest.approx(whole.log_probs[index].item(), rel=1e-9)
    with pytest.raises(ValueError, match="expected at least <bos>"):
        start_continuation(model, prompts[:, :0])


def test_samples_of_a_language_model_have_the_frequencies_of_its_texts(language_model):
    model, draws = language_model(3), 3000
    texts = sample(
        model, start_continuation(model, torch.ones(draws, 1, dtype=torch.int64)), 2, torch.Generator().manual_seed(0)
    )
    kinds = sorted({text.tokens for text in texts})
    expected = draws * score_texts(model, kinds).log_probs.exp()
    counts = torch.tensor([sum(text.tokens == kind for text in texts) for kind in kinds])
    often = expected > 5
    chi_square = ((counts - expected)[often] ** 2 / expected[often]).sum()
    freedom = int(often.sum())
    assert chi_square < freedom + 4 * (2 * freedom) ** 0.5
