import pytest
import torch

from labkit.errors import UserError
from labkit.models.speech import SpeechConfig, SpeechModel

CONV = SpeechConfig(vocabulary=29, kind="conv", channels=16, layers=2)
LSTM = SpeechConfig(vocabulary=29, kind="lstm", channels=16, layers=2, hidden=12, kernel=11, strides=(2,))


@pytest.mark.parametrize("config", [CONV, LSTM], ids=["conv", "lstm"])
def test_padding_changes_no_output(config):
    torch.manual_seed(0)
    model = SpeechModel(config).eval()
    alone = torch.randn(1, 61, 80)
    longer = torch.randn(1, 100, 80)
    padded = torch.cat([torch.cat([alone, torch.zeros(1, 39, 80)], 1), longer])
    with torch.inference_mode():
        single, length = model(alone, torch.tensor([61]))
        both, lengths = model(padded, torch.tensor([61, 100]))
    assert lengths[0] == length[0] == single.shape[1]
    torch.testing.assert_close(both[0, : length[0]], single[0], rtol=1e-4, atol=1e-5)  # other batch, other sum order


@pytest.mark.parametrize(("config", "expected"), [(CONV, 16), (LSTM, 31)], ids=["conv", "lstm"])
def test_output_lengths_are_those_of_the_output(config, expected):
    output, lengths = SpeechModel(config).eval()(torch.randn(1, 61, 80), torch.tensor([61]))
    assert output.shape == (1, expected, 29)
    assert lengths.tolist() == config.output_lengths(torch.tensor([61])).tolist() == [expected]
    torch.testing.assert_close(output.exp().sum(2), torch.ones(1, expected))


def test_an_unknown_kind_is_refused():
    with pytest.raises(UserError, match="conv, lstm"):
        SpeechConfig(vocabulary=29, kind="transformer", channels=16, layers=2)
