import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from labkit.collocation.memory.hidden_room import lstm_workspace_bytes
from labkit.collocation.memory.storage_log import StorageLog
from labkit.collocation.memory.table_update import PredictedUpdate, distinct_rows
from labkit.fast.tables import EmbeddingTables

NUM_ROWS = (1000, 50)
BATCH, POOLING, DIM = 10, 2, 4


def _log_of_update(optimiser: str, way: str, threads: int = 1) -> tuple[StorageLog, PredictedUpdate]:
    """The log of one update, its state among it; the bags are there before."""
    with FakeTensorMode():
        tables = EmbeddingTables(NUM_ROWS, DIM)
        tables._bags = (
            torch.empty(BATCH, len(NUM_ROWS), POOLING, dtype=torch.int32),
            torch.empty(BATCH, len(NUM_ROWS), DIM),
        )
        update = PredictedUpdate(tables, NUM_ROWS, optimiser, way, threads)
        with StorageLog() as log:
            log.mark("start")
            update.step()
            log.mark("end")
    return log, update


def test_distinct_rows_are_at_most_the_lookups_and_the_rows():
    assert distinct_rows([1_000_000_000], 10) == 10
    assert distinct_rows([3], 1000) == 3
    assert distinct_rows([2], 2) == round(2 * (1 - 0.25))


def test_plain_sgd_holds_sorted_rows_and_one_block():
    log, _ = _log_of_update("sgd", "plain")
    held, _ = log.at_peak("start")
    lookups, rows = 40, distinct_rows(NUM_ROWS, 20)
    # sorted and distinct int32; order, counts and bags int64; ends and starts int64
    found = lookups * (4 + 4) + lookups * 8 * 3 + rows * 8 * 2
    # rows int64 and their gradient, and while the rule is applied the rows' weights; or embedding_bag's three int64
    assert log.bytes_of(held) == found + rows * 8 + rows * DIM * 4 + max(rows * DIM * 4, 8 * lookups + 16 * rows)
    assert not log.held_at("end")


def test_state_is_kept_as_the_optimisers_keep_it():
    table_bytes = 4 * sum(NUM_ROWS) * DIM
    for optimiser, expected in {
        "sgd": 0,
        "adagrad": table_bytes,
        "rowwise-adagrad": 4 * sum(NUM_ROWS),
        "adam": 2 * table_bytes,
    }.items():
        _, update = _log_of_update(optimiser, "plain")
        assert sum(each.numel() for each in update.state) == expected


def test_the_compiled_update_keeps_slots_for_all_rows_and_sums_for_each_thread():
    log, update = _log_of_update("rowwise-adagrad", "compiled", threads=2)
    distinct = 20  # lookups of a table: fewer than the rows of the largest
    room = 4 * sum(NUM_ROWS) + 2 * distinct * 4 + 2 * distinct * DIM * 4
    assert log.bytes_of(log.held_at("end")) == 4 * sum(NUM_ROWS) + room
    del update


def test_the_workspace_of_an_lstm_layer_is_what_onednn_makes():
    for dtype in (torch.float32, torch.bfloat16):
        steps, batch, size, hidden = 64, 8, 32, 128

        def made(*shape, dtype=dtype):
            return torch.zeros(*shape, dtype=dtype)

        weights = made(4 * hidden, size), made(4 * hidden, hidden), made(4 * hidden), made(4 * hidden)
        states = made(batch, hidden), made(batch, hidden)
        answer = torch.mkldnn_rnn_layer(
            made(steps, batch, size), *weights, *states, False, [], 2, hidden, 1, True, False, False, True
        )
        formula = lstm_workspace_bytes(made(steps, batch, size), hidden)
        # each of its parts begins at a multiple of 4096 bytes
        assert 0 <= answer[3].nbytes - formula < 12 * 4096
