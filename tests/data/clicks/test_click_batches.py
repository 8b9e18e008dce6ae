import torch

from labkit.data.clicks import load_clicks
from labkit.data.clicks.batches import ClickBatches, in_order


def test_batches_from_the_middle_of_an_epoch_are_those_of_the_whole():
    train = load_clicks("synthetic-small").split("train")
    batches = ClickBatches(train, 1000, seed=3)
    first, second = list(batches), list(batches)  # an epoch each
    assert len(first) == len(batches) == -(-len(train) // 1000)
    assert not torch.equal(first[0][0], second[0][0])
    for whole, again in zip(second[2:], batches.at(1, 2), strict=True):
        torch.testing.assert_close(whole, again, rtol=0, atol=0)


def test_rows_in_order_are_the_split():
    test = load_clicks("synthetic-small").split("test")
    labels = torch.cat([label for _, _, label in in_order(test, 999)])
    assert labels.tolist() == test.label.tolist()
