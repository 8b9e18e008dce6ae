"""A recogniser that hears chunk by chunk gives what it gives of the whole recording."""

import pytest
import torch
from made_recogniser import tiny_model

from labkit.errors import UserError
from labkit.fast import ChannelsLastBlock
from labkit.models.speech import KINDS
from labkit.transcription import Stream

TOLERANCE = 1e-4
"""In log-probabilities: the same products, summed in another order in fp32"""


def streamed(model, features: torch.Tensor, chunk: int) -> torch.Tensor:
    stream = Stream(model)
    parts = [stream.push(part) for part in features.split(chunk)]
    return torch.cat([*parts, stream.finish()])


@torch.inference_mode()
def whole(model, features: torch.Tensor) -> torch.Tensor:
    return model(features.unsqueeze(0), torch.tensor([len(features)]))[0][0]


@pytest.mark.parametrize("chunk", [1, 7, 50])
@pytest.mark.parametrize(
    ("kind", "strides", "shape"),
    [
        ("lstm", (2,), {"kernel": 11}),
        ("lstm", (2, 2), {"kernel": 5}),
        ("conv", (2, 2), {"kernel": 7}),
        ("conv", (2, 1, 1), {"kernel": 7, "maps": (2, 3, 4)}),
    ],
)
def test_any_chunks_give_what_the_whole_gives(kind, strides, shape, chunk):
    model = tiny_model(kind, strides, **shape)
    for frames in (1, 2, 3, 8, 49, 50, 51, 130):
        features = torch.randn(frames, 80, generator=torch.Generator().manual_seed(frames))
        torch.testing.assert_close(streamed(model, features, chunk), whole(model, features), atol=TOLERANCE, rtol=0)


def test_a_hundred_utterances_of_the_fast_kernels():
    model = tiny_model("lstm", (2, 2), maps=(2, 3), block=ChannelsLastBlock)
    dice = torch.Generator().manual_seed(0)
    for _ in range(100):
        frames, chunk = torch.randint(20, 300, (2,), generator=dice).tolist()
        features = torch.randn(frames, 80, generator=dice)
        torch.testing.assert_close(streamed(model, features, chunk), whole(model, features), atol=TOLERANCE, rtol=0)


def test_outputs_come_before_the_end():
    stream = Stream(tiny_model("lstm", (2,), kernel=11))
    heard = stream.push(torch.randn(50, 80))
    assert len(heard) == 23, "all but those that see beyond: (50 + 5 - 11) // 2 + 1"


def test_a_model_that_hears_backwards_is_refused():
    with pytest.raises(UserError, match="whole"):
        Stream(tiny_model(KINDS[-1]))
