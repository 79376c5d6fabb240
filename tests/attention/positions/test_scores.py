"""Positions that act on the scores: each against its formula, one pair of positions at a time."""

import itertools
import math

import pytest
import torch

from structattn.attention.positions import AlibiPositions, RelativePositions, RotaryPositions, ScorePositions

HEADS, SIZE = 3, 4
POSITIONS = {
    "rotary": lambda: RotaryPositions(SIZE),
    "rotary, halves": lambda: RotaryPositions(SIZE, base=100.0, layout="halves"),
    "alibi": lambda: AlibiPositions(HEADS),
    "alibi, shifted": lambda: AlibiPositions(HEADS, variant="shifted"),
    "relative": lambda: RelativePositions(HEADS * SIZE, HEADS),
    "relative, other base": lambda: RelativePositions(HEADS * SIZE, HEADS, base=256.0),
}


@pytest.fixture(params=POSITIONS.values(), ids=POSITIONS.keys())
def positions(request):
    torch.manual_seed(4)
    made = request.param().double()
    for parameter in made.parameters():
        torch.nn.init.uniform_(parameter, -0.7, 0.7)
    return made


def vectors(time, source, dtype=torch.float64):
    generator = torch.Generator().manual_seed(time + 10 * source)
    return [
        torch.randn(2, HEADS, count, SIZE, generator=generator, dtype=torch.float64).to(dtype)
        for count in (time, source)
    ]


def scores(positions, query, key, first=0):
    query, key, bias = positions(query, key, first)
    products = query @ key.transpose(-1, -2) / math.sqrt(SIZE)
    return products if bias is None else products + bias


def turned(vector, t, base, layout):
    """The rotation matrix of position t times the vector, written out."""
    matrix = torch.zeros(SIZE, SIZE, dtype=vector.dtype)
    for i in range(SIZE // 2):
        angle = t * base ** (-2 * i / SIZE)
        a, b = (2 * i, 2 * i + 1) if layout == "interleaved" else (i, i + SIZE // 2)
        matrix[a, a] = matrix[b, b] = math.cos(angle)
        matrix[b, a], matrix[a, b] = math.sin(angle), -math.sin(angle)
    return matrix @ vector


def waves(offset, d_model, base):
    half = [offset / base ** (2 * i / d_model) for i in range(d_model // 2)]
    return torch.tensor([math.sin(x) for x in half] + [math.cos(x) for x in half], dtype=torch.float64)


def score_of_a_pair(positions, q, k, head, t, s):
    """The definition, for the query at position t and the key at position s."""
    if isinstance(positions, RotaryPositions):
        options = (positions.base, positions.layout)
        return turned(q, t, *options) @ turned(k, s, *options) / math.sqrt(SIZE)
    if isinstance(positions, AlibiPositions):
        slope = [2**-4, 2**-8, 2**-2][head]
        distance = abs(t - s) - (0.5 if positions.variant == "shifted" and s < t else 0)
        return q @ k / math.sqrt(SIZE) - slope * distance
    rows = slice(head * SIZE, (head + 1) * SIZE)
    offset = positions.projection.weight[rows] @ waves(t - s, HEADS * SIZE, positions.sinusoids.base)
    u, v = positions.content_bias[head, 0], positions.offset_bias[head, 0]
    return ((q + u) @ k + (q + v) @ offset) / math.sqrt(SIZE)


@pytest.mark.parametrize(
    ("time", "source", "first"), [(1, 1, 0), (2, 5, 0), (5, 2, 0), (7, 7, 0), (2, 9, 7), (1, 4, 30)]
)
def test_the_formula(positions, time, source, first):
    query, key = vectors(time, source)
    found = scores(positions, query, key, first)
    tables = 1e-6 if isinstance(positions, RelativePositions) else 1e-12  # its waves are kept in float32
    for b, h, t, s in itertools.product(range(2), range(HEADS), range(time), range(source)):
        expected = score_of_a_pair(positions, query[b, h, t], key[b, h, s], h, first + t, s)
        torch.testing.assert_close(found[b, h, t, s], expected, rtol=tables, atol=tables)


def test_only_the_offset_counts(positions):
    query, key = vectors(4, 1)
    key = key.expand(-1, -1, 9, -1)  # the same vector everywhere
    near, far = scores(positions, query, key, 0), scores(positions, query, key, 5)
    torch.testing.assert_close(far[..., 5:], near[..., :4], rtol=1e-11, atol=1e-11)


def test_a_step_is_a_row_of_the_whole(positions):
    query, key = vectors(7, 7)
    whole = scores(positions, query, key)
    for t in range(7):
        step = scores(positions, query[:, :, t : t + 1], key[:, :, : t + 1], first=t)
        torch.testing.assert_close(step[:, :, 0], whole[:, :, t, : t + 1], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("time", "source"), [(0, 0), (0, 3), (3, 0)])
def test_empty_sizes(positions, time, source):
    assert scores(positions, *vectors(time, source)).shape == (2, HEADS, time, source)


@pytest.mark.parametrize("far", [1022, 5000])
def test_far_away_nothing_changes(positions, far):
    query, key = vectors(3, 1)
    key = key.expand(-1, -1, far + 4, -1)
    found = scores(positions, query, key, far)[..., far:]
    torch.testing.assert_close(found, scores(positions, query, key[:, :, :4]), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_dtypes_are_kept(positions, dtype):
    found = positions.to(dtype)(*vectors(3, 5, dtype), first=300)
    assert all(tensor is None or tensor.dtype == dtype for tensor in found)


def test_the_protocol(positions):
    assert isinstance(positions, ScorePositions)


def test_nothing_but_parameters_is_saved(positions):
    assert set(positions.state_dict()) == {name for name, _ in positions.named_parameters()}


def test_rotation_keeps_lengths():
    query, key = vectors(9, 9)
    found, _, _ = RotaryPositions(SIZE)(query, key, 3)
    torch.testing.assert_close(found.norm(dim=-1), query.norm(dim=-1), rtol=1e-13, atol=0)


@pytest.mark.parametrize(
    ("heads", "exponents"),
    [
        (1, [8]),
        (2, [4, 8]),
        (8, [1, 2, 3, 4, 5, 6, 7, 8]),
        (16, [i / 2 for i in range(1, 17)]),
        (6, [2, 4, 6, 8, 1, 3]),
        (12, [1, 2, 3, 4, 5, 6, 7, 8, 0.5, 1.5, 2.5, 3.5]),
    ],
)
def test_slopes(heads, exponents):
    slopes = AlibiPositions(heads).table
    torch.testing.assert_close(slopes, torch.tensor([2.0**-e for e in exponents], dtype=torch.float64))


def test_the_shifted_matrix():
    _, _, bias = AlibiPositions(8, variant="shifted")(torch.zeros(1, 8, 3, 2), torch.zeros(1, 8, 3, 2), 0)
    expected = torch.tensor([[0.0, -1.0, -2.0], [-0.5, 0.0, -1.0], [-1.5, -0.5, 0.0]])
    assert torch.equal(bias[0, 0], expected / 2)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: RotaryPositions(3), "size=3; expected an even head size"),
        (lambda: RotaryPositions(4, layout="thirds"), "layout='thirds'"),
        (lambda: RotaryPositions(4, base=-10.0), "base=-10.0; expected 0 < base < inf"),
        (lambda: RotaryPositions(6)(*vectors(2, 2), 0), "the heads have size 4; expected 6"),
        (lambda: AlibiPositions(0), "num_heads=0"),
        (lambda: AlibiPositions(4, variant="steep"), "variant='steep'"),
        (lambda: AlibiPositions(4)(*vectors(2, 2), 0), "the query has 3 heads; expected 4"),
        (lambda: RelativePositions(7, 2), "2 heads do not divide d_model=7"),
        (lambda: RelativePositions(8, 2)(*vectors(2, 2), 0), "the query has 3 heads of size 4; expected 2 of size 4"),
    ],
)
def test_refusals(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("layout", ["interleaved", "halves"])
@pytest.mark.parametrize("position", [0, 5, 1023, 1024, 3000])
def test_the_rotation_at_a_position_is_that_of_a_vector_there(layout, position):
    positions, (query, key) = RotaryPositions(SIZE, layout=layout), vectors(1, 1)
    rotated = positions(query, key, position)[0]
    cosines, sines = positions.rotation(position)
    first, second = (slice(0, None, 2), slice(1, None, 2)) if layout == "interleaved" else (slice(0, 2), slice(2, 4))
    torch.testing.assert_close(rotated[..., first], query[..., first] * cosines - query[..., second] * sines)
    torch.testing.assert_close(rotated[..., second], query[..., first] * sines + query[..., second] * cosines)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_rotations_of_a_cast_module_do_not_depend_on_the_length(dtype):
    positions, x = RotaryPositions(SIZE).to(dtype), torch.randn(1, 1, 1025, SIZE).to(dtype)
    shorter, whole = positions(x[:, :, :1024], x[:, :, :1024], 0)[0], positions(x, x, 0)[0]
    assert torch.equal(shorter, whole[:, :, :1024])
    assert torch.equal(shorter, RotaryPositions(SIZE)(x[:, :, :1024], x[:, :, :1024], 0)[0])
