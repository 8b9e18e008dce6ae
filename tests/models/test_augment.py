"""What a recogniser hears while it is trained."""

import pytest
import torch

from labkit.data.speech import mel_filters
from labkit.models.augment import Noise, Warping, _hz, _mel

LENGTHS = torch.tensor([40, 20, 30])


def ramps() -> torch.Tensor:
    """Features (3, 40, 8) that rise by one a frame and by a hundred a bin, zero padded."""
    values = torch.arange(40.0)[:, None] + 100 * torch.arange(8.0)
    return values.expand(3, 40, 8) * (torch.arange(40) < LENGTHS[:, None]).unsqueeze(2)


def test_speed_changes_lengths_and_keeps_what_is_said():
    torch.manual_seed(0)
    warped, lengths = Warping(speed=0.5, tract=0.0).train()(ramps(), LENGTHS)
    assert warped.shape[0::2] == (3, 8) and lengths.max() <= warped.shape[1] < lengths.max() + 32
    assert warped.shape[1] % 32 == 0, "few shapes, for each of which kernels are kept"
    assert lengths.tolist() != LENGTHS.tolist()
    for values, length, before in zip(warped, lengths, LENGTHS, strict=True):
        rate = values[1, 0] - values[0, 0]
        assert 0.5 <= rate <= 1.5
        assert length == pytest.approx(float(before / rate), abs=1)
        assert not values[length:].any()


def test_the_mel_scale_is_slaneys_there_and_back():
    mels = torch.arange(1, 81) * _mel(torch.tensor(8000.0)) / 81
    filters = mel_filters()
    peaks_hz = (filters * torch.arange(257)[:, None]).sum(0) / filters.sum(0) * 31.25
    assert torch.allclose(_hz(mels), peaks_hz, atol=4.0, rtol=0)  # an eighth of the distance of two rows
    assert torch.allclose(_mel(_hz(mels)), mels, rtol=1e-4)


def test_tracts_stretch_frequencies_alone():
    torch.manual_seed(0)
    warped, lengths = Warping(speed=0.0, tract=0.2).train()(ramps(), LENGTHS)
    assert lengths.tolist() == LENGTHS.tolist()
    assert len({round(float(each), 3) for each in warped[:, 0, 1]}) == 3  # a stretch an utterance
    assert all(59 <= each <= 141 for each in warped[:, 0, 1])  # 669 Hz, a fifth less or more, in bins of 5 mel


@pytest.mark.parametrize("module", [Warping(0.2, 0.2), Warping(0.0, 0.0).train()])
def test_nothing_changes_in_evaluation_or_where_nothing_is_asked(module):
    if module.speed:
        module.eval()
    warped, lengths = module(ramps(), LENGTHS)
    assert torch.equal(warped, ramps()) and torch.equal(lengths, LENGTHS)


def test_noise_raises_colours_and_disturbs():
    torch.manual_seed(0)
    silence = torch.zeros(200, 50, 8)
    heard = Noise(0.3).train()(silence, torch.full((200,), 50))
    assert heard.mean((1, 2)).std() == pytest.approx(0.3, rel=0.2)  # loudness, an utterance
    assert (heard[:, :, -1] - heard[:, :, 0]).mean(1).std() == pytest.approx(0.6, rel=0.2)  # colour, from -1 to 1
    noise = (heard - heard.mean(1, keepdim=True)).std((1, 2))  # a frame and bin
    assert 0.2 < noise.max() <= 0.31 and noise.min() < 0.1
    assert torch.equal(Noise(0.3).eval()(silence, torch.full((200,), 50)), silence)


def test_padding_stays_zero_under_noise():
    heard = Noise(0.3).train()(torch.zeros(2, 50, 8), torch.tensor([50, 20]))
    assert heard[0].all() and heard[1, :20].all() and not heard[1, 20:].any()
