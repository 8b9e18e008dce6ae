import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from labkit.collocation.memory.storage_log import StorageLog, room


def test_what_is_held_at_the_peak_is_what_the_backward_pass_needs():
    with FakeTensorMode(), StorageLog() as log:
        log.phase = "forward"
        weight = torch.empty(1000, requires_grad=True)  # 4,000 bytes
        doubled = weight * 2  # freed below: a product with a number keeps nothing
        answer = doubled.relu().sum()  # 4,000 kept, and 4
        del doubled
        log.phase = "backward"
        answer.backward()  # ones of 4 bytes; then 4,000 of the ReLU's gradient
        assert weight.grad is not None
        held, phase = log.at_peak()
    assert phase == "backward"
    assert log.bytes_of(held) == 3 * 4000 + 4 + 4


def test_views_count_once_and_sizes_are_rounded_up():
    with FakeTensorMode(), StorageLog(granularity=512) as log:
        one = torch.empty(100, dtype=torch.uint8)
        assert one.view(10, 10).shape == (10, 10)
        other = torch.empty(513, dtype=torch.uint8)
        held, _ = log.at_peak()
    assert log.bytes_of(held) == 512 + 1024
    del one, other


def test_a_peak_can_be_looked_for_from_a_moment_on():
    with FakeTensorMode(), StorageLog() as log:
        large = room(1_000_000)
        del large
        log.mark("later")
        log.phase = "late"
        small = room(10)
        held, phase = log.at_peak("later")
    assert (log.bytes_of(held), phase) == (10, "late")
    del small


def test_a_gather_of_16_bit_numbers_takes_fp32_room_beside_its_result():
    with FakeTensorMode():
        values = torch.empty(8, 100, dtype=torch.bfloat16)
        places = torch.empty(8, 50, dtype=torch.int64)
        with StorageLog() as log:
            log.mark("start")
            gathered = values.gather(1, places)
            held, _ = log.at_peak("start")
    assert log.bytes_of(held) == (2 + 4) * gathered.numel()
