import pytest
import torch

from labkit.errors import UserError
from labkit.models.augment import Masking
from labkit.models.speech import SpeechConfig, SpeechModel

CONV = SpeechConfig(vocabulary=29, kind="conv", channels=16, layers=2)
LSTM = SpeechConfig(vocabulary=29, kind="lstm", channels=16, layers=2, hidden=12, kernel=11, strides=(2,))
BILSTM = SpeechConfig(vocabulary=29, kind="bilstm", channels=16, layers=2, hidden=12)
IMAGES = SpeechConfig(vocabulary=29, kind="conv", channels=16, layers=2, strides=(2, 2, 1), maps=(2, 3, 4))
MODELS = {config.kind: config for config in (CONV, LSTM, BILSTM)} | {"images": IMAGES}


@pytest.mark.parametrize("config", MODELS.values(), ids=MODELS)
def test_a_recogniser_learns_by_every_weight_and_padding_changes_no_output(config):
    torch.manual_seed(0)
    model, alone = SpeechModel(config), torch.randn(1, 61, 80)
    output, _ = model(torch.randn(3, 61, 80), torch.tensor([61, 50, 40]))
    output[:, :, 0].sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None and parameter.grad.abs().sum() > 0, name
    model.eval()
    padded = torch.cat([torch.cat([alone, torch.zeros(1, 39, 80)], 1), torch.randn(1, 100, 80)])
    with torch.inference_mode():
        single, length = model(alone, torch.tensor([61]))
        both, lengths = model(padded, torch.tensor([61, 100]))
    expected = 31 if config is LSTM else 16  # 61 frames, two or four an output
    assert single.shape == (1, expected, 29) and lengths[0] == length[0] == expected
    torch.testing.assert_close(single.exp().sum(2), torch.ones(1, expected))
    torch.testing.assert_close(both[0, : length[0]], single[0], rtol=1e-4, atol=1e-5)  # other batch, other sum order


def test_an_unknown_kind_is_refused():
    with pytest.raises(UserError, match="conv, lstm, bilstm"):
        SpeechConfig(vocabulary=29, kind="transformer", channels=16, layers=2)


def test_convolutions_of_images_have_a_width_and_a_stride_each():
    with pytest.raises(UserError, match="differ in length"):
        SpeechConfig(vocabulary=29, kind="conv", channels=16, layers=2, maps=(8,))


def test_masks_hide_stretches_of_the_utterance_while_training_only():
    torch.manual_seed(0)
    masking = Masking(bins=10, frames=8)
    features, lengths = torch.ones(6, 50, 80), torch.tensor([50, 40, 30, 50, 50, 50])
    hidden = masking(features, lengths) == 0
    assert hidden.any(dim=(1, 2)).sum() >= 5  # a stretch may have width 0, but hardly all of one utterance
    bins, frames = hidden.all(dim=1).sum(1), hidden.all(dim=2).sum(1)
    assert bins.max() <= 2 * 9
    assert frames.max() <= 2 * 7
    assert not hidden.all(dim=2)[2, 30:].any()
    assert masking.eval()(features, lengths) is features
