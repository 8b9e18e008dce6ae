import pytest
import torch
from torch import nn

from labkit.errors import UserError
from labkit.models.dlrm import INTERACTIONS, Dlrm, DlrmConfig
from labkit.fast.interaction import PairwiseProducts, pairwise_products
from labkit.fast.tables import EmbeddingTables, row_gradients

SHAPE = {"dense_dim": 3, "num_rows": (5, 7), "embedding_dim": 4, "bottom_mlp": (8, 4), "top_mlp": (6, 1)}


def inputs(batch: int = 6, pooling_factor: int = 1) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    columns = [torch.randint(rows, (batch, 1, pooling_factor), generator=generator) for rows in SHAPE["num_rows"]]
    return torch.randn(batch, 3, generator=generator), torch.cat(columns, 1).int()


def test_dot_interaction_is_every_pair_of_features_once():
    torch.manual_seed(0)
    model = Dlrm(DlrmConfig(**SHAPE))
    dense, categorical = inputs(pooling_factor=2)
    bottom = model.bottom(dense)
    tables = model.tables.weight.split(SHAPE["num_rows"])
    features = [bottom, *(table[categorical[:, f].long()].sum(1) for f, table in enumerate(tables))]
    pairs = [(features[i] * features[j]).sum(1) for i in range(3) for j in range(i)]
    expected = model.top(torch.cat([bottom, torch.stack(pairs, 1)], 1)).squeeze(1)
    torch.testing.assert_close(model(dense, categorical), expected)


@pytest.mark.parametrize("interaction", INTERACTIONS)
def test_every_parameter_learns(interaction):
    model = Dlrm(DlrmConfig(**SHAPE, interaction=interaction), sparse=False)
    dense, categorical = inputs(64)
    nn.functional.softplus(model(dense, categorical)).sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 0, name


def test_one_table_of_all_categories_equals_a_table_each():
    torch.manual_seed(0)
    model = Dlrm(DlrmConfig(**SHAPE))
    dense, categorical = inputs()
    before = model(dense, categorical).detach()
    with torch.no_grad():  # rows 0-4 belong to the first table, 5-11 to the second
        model.tables.weight[5 + int(categorical[0, 1, 0])] += 1.0
    changed = (model(dense, categorical) != before).tolist()
    assert changed == (categorical[:, 1, 0] == categorical[0, 1, 0]).tolist()


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"interaction": "sum"}, "interaction"),
        ({"bottom_mlp": (8, 5)}, "bottom_mlp"),
        ({"top_mlp": (6, 2)}, "top_mlp"),
    ],
)
def test_a_shape_that_cannot_be_is_refused(wrong, words):
    with pytest.raises(UserError, match=words):
        DlrmConfig(**SHAPE | wrong)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_pairwise_products_and_their_gradient_are_the_plain_ones(dtype):
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(5, 4, 3, generator=generator).to(dtype)
    weights = torch.randn(5, 6, generator=generator).to(dtype)
    answers = []
    for products in (pairwise_products, PairwiseProducts(4)):
        leaf = features.clone().requires_grad_()
        made = products(leaf)
        (made * weights).sum().backward()
        answers.append((made.detach(), leaf.grad))
    # in bf16 a sum of two products may be rounded once more
    torch.testing.assert_close(answers[0], answers[1], **({"rtol": 0.02, "atol": 0.02} if dtype.itemsize == 2 else {}))


@pytest.mark.parametrize("keeps_bags", [False, True])
def test_sparse_gradients_are_what_autograd_spreads_over_rows(keeps_bags):
    dense = EmbeddingTables((5, 7), 4, sparse=False)
    nn.init.normal_(dense.weight)
    tables = EmbeddingTables((5, 7), 4)
    tables.load_state_dict(dense.state_dict())
    tables.keeps_bags = keeps_bags
    _, categorical = inputs(pooling_factor=3)
    weights = torch.randn(6, 2, 4)
    for each in (dense, tables):
        (each(categorical) * weights).sum().backward()
    if keeps_bags:
        assert tables.weight.grad is None
        blocks = list(row_gradients(*tables.take_bags(), most_rows=5))
        assert [len(rows) for rows, _ in blocks[:-1]] == [5] * (len(blocks) - 1)
        distinct, values = (torch.cat(parts) for parts in zip(*blocks, strict=True))
        assert len(distinct.unique()) == len(distinct)
        torch.testing.assert_close(torch.zeros(12, 4).index_put((distinct,), values), dense.weight.grad)
    else:
        assert tables.weight.grad.is_coalesced()  # or every optimiser would sort it again
        torch.testing.assert_close(tables.weight.grad.to_dense(), dense.weight.grad)
