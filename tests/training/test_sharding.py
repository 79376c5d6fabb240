"""Models whose weights FSDP shards compute what they compute without it."""

import copy

import pytest
import torch
import torch.distributed as dist

from structattn.attention import SoftmaxAttention
from structattn.models.builders.models import build_model
from structattn.runs.folder import RunFolder
from structattn.settings.run import resolve_settings
from structattn.support.errors import SettingsError
from structattn.training.assembly import initial_learner, make_plan
from structattn.training.distributed import World, shard

SIZES = {"d_model": 16, "d_ff": 32, "num_heads": 2, "dropout": 0.0}
LSTM = {"kind": "lstm", "hidden_size": 8, "num_layers": 2}
MODELS = {
    "lstm": LSTM,
    "lstm, learned start, stack": LSTM | {"learned_initial_state": True, "stack": "nondeterministic-2-2-3"},
    "rnn, joined reading": {"kind": "rnn", "hidden_size": 8, "stack": "superposition-4", "join_reading": True},
    "stack_trans": SIZES | {"layers": "1.stack_trans-8.1"},
    "stack_trans, added": SIZES | {"layers": "1+stack_trans"},
    "stack_trans over depth": SIZES | {"layers": "2", "depth_stack": {"stack_embedding_size": 8}},
    "looped": SIZES | {"layers": "3", "loops": {"count": 2, "prelude": 1}},
    "stacks": SIZES | {"layers": "superposition-4.nondeterministic-2-2-3.stack_pointer.delta_product.gaussian.hard"},
}
TOKENS, LENGTHS = torch.tensor([[1, 4, 5, 6, 4], [1, 5, 3, 0, 0]]), torch.tensor([5, 3])


@pytest.fixture(scope="module")
def alone():
    """This process as the only one of a group."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def loss(model):
    inside = torch.arange(TOKENS.shape[1]) < LENGTHS[:, None]
    return model(TOKENS, lengths=LENGTHS)[inside].square().mean()


@pytest.mark.filterwarnings("ignore:FSDP2-wrapped module:UserWarning")  # states, which nothing changes
@pytest.mark.parametrize("name", MODELS)
def test_sharded_models_have_the_loss_and_gradients_of_whole_ones(alone, name):
    tree = {"task": "language_modeling", "data": "unused", "training": {"batches": "sequences"}, "model": MODELS[name]}
    torch.manual_seed(0)
    whole = build_model(resolve_settings(tree).model, 10).eval()
    parts = copy.deepcopy(whole)
    expected = loss(whole)
    expected.backward()
    found = shard(parts, torch.device("cpu"))(loss)
    found.backward()
    torch.testing.assert_close(found, expected)
    for one, other in zip(parts.parameters(), whole.parameters(), strict=True):
        assert (one.grad is None) == (other.grad is None)
        if one.grad is not None:
            torch.testing.assert_close(one.grad.full_tensor(), other.grad)


def test_parameters_without_dimensions_are_refused_by_name(small_settings, tmp_path, monkeypatch):
    """As a plugin may have them; before anything is written."""
    init = SoftmaxAttention.__init__

    def with_scalar(self, *arguments, **options):
        init(self, *arguments, **options)
        self.scale = torch.nn.Parameter(torch.tensor(1.0))

    monkeypatch.setattr(SoftmaxAttention, "__init__", with_scalar)
    settings = small_settings(strategy="fsdp", gradient_accumulation_steps=2)
    plan = make_plan(RunFolder(tmp_path / "run"), settings)
    message = r"'fsdp' cannot shard parameters without dimensions: .*\.scale; expected 'ddp', or .* shape \(1,\)"
    with pytest.raises(SettingsError, match=message):
        initial_learner(plan, World(size=2))
    initial_learner(plan)  # a process that trains alone has whole weights
    assert not (tmp_path / "run").exists()
