import pytest
import torch
from torch import nn

from labkit.errors import UserError
from labkit.models.dlrm import Dlrm, DlrmConfig

SHAPE = {"dense_dim": 3, "num_rows": (5, 7), "embedding_dim": 4, "bottom_mlp": (8, 4), "top_mlp": (6, 1)}


def inputs(batch: int = 6, pooling_factor: int = 1) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    columns = [torch.randint(rows, (batch, 1, pooling_factor), generator=generator) for rows in SHAPE["num_rows"]]
    return torch.randn(batch, 3, generator=generator), torch.cat(columns, 1).int()


def test_the_interaction_is_every_pair_of_features_once():
    torch.manual_seed(0)
    model = Dlrm(DlrmConfig(**SHAPE))
    dense, categorical = inputs(pooling_factor=2)
    bottom = model.bottom(dense)
    tables = model.tables.table_weights()
    features = [bottom, *(table[categorical[:, f].long()].sum(1) for f, table in enumerate(tables))]
    pairs = [(features[i] * features[j]).sum(1) for i in range(3) for j in range(i)]
    expected = model.top(torch.cat([bottom, torch.stack(pairs, 1)], 1)).squeeze(1)
    torch.testing.assert_close(model(dense, categorical), expected)


def test_every_parameter_learns_and_tables_by_the_rows_that_are_named():
    model = Dlrm(DlrmConfig(**SHAPE))
    assert model.config.parameter_bytes == sum(4 * table.numel() for table in model.tables.parameters())
    nn.functional.softplus(model(*inputs(64))).sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 0, name
        assert parameter.grad.is_sparse == name.startswith("tables"), name


@pytest.mark.parametrize(("wrong", "words"), [({"bottom_mlp": (8, 5)}, "bottom_mlp"), ({"top_mlp": (6, 2)}, "top_mlp")])
def test_a_shape_that_cannot_be_is_refused(wrong, words):
    with pytest.raises(UserError, match=words):
        DlrmConfig(**SHAPE | wrong)
