"""What 12_where_embeddings_live takes for right code, against torch's own and the kit's cache."""

import numpy as np
import torch

from labkit.placement.cache import CacheIndex
from labkit_course.checks import all_exercises

LruCache, placed_step = (all_exercises("12")[name].reference for name in ("12.lru", "12.step"))


def test_the_cache_hits_as_the_kits_does_even_where_a_batch_is_larger():
    rng = np.random.default_rng(2)
    for slots, size in ((30, 20), (15, 40)):
        cache, index = LruCache(slots), CacheIndex(200, slots, "lru")
        for _ in range(200):
            rows = np.unique(rng.zipf(1.2, size) % 200)
            assert cache.look_up(rows.tolist()) == len(rows) - index.look(rows).missed


def test_a_step_of_rows_elsewhere_is_that_of_an_embedding_bag_with_sgd():
    torch.manual_seed(4)
    bag, top = torch.nn.EmbeddingBag(50, 8, mode="sum", sparse=True), torch.nn.Linear(8, 1)
    sgd, table = torch.optim.SGD(bag.parameters(), lr=0.3), bag.weight.detach().clone()
    for _ in range(5):
        bags = torch.randint(50, (40, 3))
        loss = placed_step(
            lambda rows: table[rows], table.__setitem__, bags, lambda sums: top(sums).square().mean(), 0.3
        )
        sgd.zero_grad()
        own = top(bag(bags)).square().mean()
        own.backward()
        sgd.step()
        torch.testing.assert_close(loss, own.detach())
    torch.testing.assert_close(table, bag.weight.detach())  # sums of gradients in another order
