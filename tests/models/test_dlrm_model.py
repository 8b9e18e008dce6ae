"""A DLRM, and its tables with fewer rows than categories: bytes, shapes, collisions, gradients, errors."""

import pytest
import torch
from torch import nn

from labkit.errors import UserError
from labkit.fast import EmbeddingTables
from labkit.models.dlrm import CompressedTables, Dlrm, DlrmConfig, TableAFeature

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


NUM_ROWS = (3, 50, 1000, 4000)
D = 4


def compressed(method, share=0.2, tables=TableAFeature):
    torch.manual_seed(0)
    part = CompressedTables(NUM_ROWS, D, method=method, share=share, tables=tables)
    with torch.no_grad():
        for weight in part.table_weights():
            weight.uniform_(-1, 1)
    return part


def one_category_of_each(third):
    return torch.tensor([[[1], [7], [third], [9]]], dtype=torch.int32)


@pytest.mark.parametrize("method", ["hash", "quotient-remainder"])
@pytest.mark.parametrize("share", [0.06, 0.2, 0.9])
def test_tables_take_the_share_of_bytes_and_hardly_less(method, share):
    rows = sum(len(weight) for weight in compressed(method, share).table_weights())
    # one more row for each large table would be too many; two tables grow at once, and a pair's two tables
    assert share * sum(NUM_ROWS) - 6 < rows <= share * sum(NUM_ROWS)


@pytest.mark.parametrize("method", ["hash", "quotient-remainder"])
def test_small_tables_stay_as_they_are(method):
    weights = compressed(method).table_weights()
    assert [len(weight) for weight in weights[:2]] == [3, 50]
    categories = torch.tensor([[[2], [49], [0], [0]]], dtype=torch.int32)
    found = compressed(method)(categories)
    assert torch.equal(found[0, 0], weights[0][2]) and torch.equal(found[0, 1], weights[1][49])


def test_categories_that_share_a_remainder_are_one_by_hashing_and_differ_by_their_quotient():
    for method, are_one in (("hash", True), ("quotient-remainder", False)):
        part = compressed(method)
        kept = int(part.divisor[2])
        assert kept < 500
        first, second = (part(one_category_of_each(7 + each * kept)) for each in (0, 1))
        assert torch.equal(first, second) == are_one
        assert torch.equal(first[:, [0, 1, 3]], second[:, [0, 1, 3]])


def test_no_two_categories_have_one_pair():
    part = compressed("quotient-remainder")
    each = torch.arange(NUM_ROWS[3], dtype=torch.int32)
    divisor = int(part.divisor[3])
    assert len({*zip((each % divisor).tolist(), (each // divisor).tolist(), strict=True)}) == NUM_ROWS[3]
    remainders, quotients = part.table_weights()[3], part.table_weights()[-1]
    assert len(remainders) == divisor and len(quotients) == -(-NUM_ROWS[3] // divisor)


@pytest.mark.parametrize("tables", [TableAFeature, EmbeddingTables])
@pytest.mark.parametrize("method", ["hash", "quotient-remainder"])
def test_sums_and_gradients_are_those_of_dense_tables(method, tables):
    part, generator = compressed(method, tables=tables), torch.Generator().manual_seed(1)
    columns = [torch.randint(rows, (5, 1, 3), generator=generator) for rows in NUM_ROWS]
    categorical = torch.cat(columns, 1).int()  # (B, F, L)
    upstream = torch.randn(5, len(NUM_ROWS), D, generator=generator)

    dense = [weight.detach().clone().requires_grad_() for weight in part.table_weights()]
    expected, quotients = [], iter(dense[len(NUM_ROWS) :])
    for feature, rows in enumerate(NUM_ROWS):
        every = torch.arange(rows)
        full = dense[feature][every % len(dense[feature])]  # (rows, D)
        if method == "quotient-remainder" and len(dense[feature]) < rows:
            full = full * next(quotients)[every // len(dense[feature])]
        expected.append(full[columns[feature][:, 0]].sum(1))
    expected = torch.stack(expected, 1)
    found = part(categorical)
    torch.testing.assert_close(found, expected)

    expected.backward(upstream)
    found.backward(upstream)
    gradients = [parameter.grad for parameter in part.parameters()]
    assert all(gradient.is_sparse for gradient in gradients)
    stored = torch.cat([gradient.to_dense() for gradient in gradients])
    torch.testing.assert_close(stored, torch.cat([weight.grad for weight in dense]))


def test_a_share_that_cannot_be_is_refused_with_one_that_can():
    # 4,000 categories need 64 + 63 rows at least, 1,000 then 64 + 16, and 53 stay: 260 of 5,053
    with pytest.raises(UserError, match=r"--compress-to 0\.0515 or more, or use --compress hash"):
        compressed("quotient-remainder", share=0.01)
    compressed("quotient-remainder", share=0.0515)
    with pytest.raises(UserError, match="hash cannot"):
        compressed("hash", share=0.0001)
