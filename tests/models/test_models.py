"""The DLRM and the speech model."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from labkit.data.speech import mel_filters
from labkit.errors import UserError
from labkit.fast import EmbeddingTables
from labkit.models.dlrm import CompressedTables, Dlrm, DlrmConfig, TableAFeature
from labkit.models.speech import SpeechConfig, SpeechModel, _hz, _mel, disturbed, masked, warped

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


NUM_ROWS = (3, 50, 1000, 4000)
D = 4


def compressed(method, share=0.2, tables=TableAFeature):
    torch.manual_seed(0)
    part = CompressedTables(NUM_ROWS, D, method=method, share=share, tables=tables)
    with torch.no_grad():
        for weight in part.table_weights():
            weight.uniform_(-1, 1)
    return part


@pytest.mark.parametrize("method", ["hash", "quotient-remainder"])
@pytest.mark.parametrize("share", [0.06, 0.2, 0.9])
def test_tables_take_the_share_of_bytes_and_hardly_less(method, share):
    rows = sum(len(weight) for weight in compressed(method, share).table_weights())
    # one more row for each large table would be too many; two tables grow at once, and a pair's two tables
    assert share * sum(NUM_ROWS) - 6 < rows <= share * sum(NUM_ROWS)


@pytest.mark.parametrize("tables", [TableAFeature, EmbeddingTables])
@pytest.mark.parametrize("method", ["hash", "quotient-remainder"])
def test_sums_and_gradients_are_those_of_dense_tables_and_small_ones_stay_as_they_are(method, tables):
    part, generator = compressed(method, tables=tables), torch.Generator().manual_seed(1)
    columns = [torch.randint(rows, (5, 1, 3), generator=generator) for rows in NUM_ROWS]
    categorical = torch.cat(columns, 1).int()  # (B, F, L)
    upstream = torch.randn(5, len(NUM_ROWS), D, generator=generator)

    dense = [weight.detach().clone().requires_grad_() for weight in part.table_weights()]
    kept = [len(weight) for weight in dense[: len(NUM_ROWS)]]
    assert kept[:2] == [3, 50] and kept[2:] == part.divisor[2:, 0].tolist() and max(kept) < 500
    expected, quotients = [], iter(dense[len(NUM_ROWS) :])
    for feature, rows in enumerate(NUM_ROWS):
        every = torch.arange(rows)
        full = dense[feature][every % kept[feature]]  # (rows, D)
        if method == "quotient-remainder" and kept[feature] < rows:
            full = full * (of_quotients := next(quotients))[every // kept[feature]]
            assert len(of_quotients) == -(-rows // kept[feature])  # no two categories have one pair
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


@pytest.mark.parametrize(
    ("config", "wrong", "words"),
    [
        (DlrmConfig, SHAPE | {"bottom_mlp": (8, 5)}, "bottom_mlp"),
        (DlrmConfig, SHAPE | {"top_mlp": (6, 2)}, "top_mlp"),
        (SpeechConfig, vars(CONV) | {"kind": "transformer"}, "conv, lstm, bilstm"),
        (SpeechConfig, vars(CONV) | {"maps": (8,)}, "differ in length"),  # a width and a stride each
    ],
)
def test_a_shape_that_cannot_be_is_refused(config, wrong, words):
    with pytest.raises(UserError, match=words):
        config(**wrong)


def test_masks_hide_stretches_of_the_utterance():
    torch.manual_seed(0)
    features, lengths = torch.ones(6, 50, 80), torch.tensor([50, 40, 30, 50, 50, 50])
    hidden = masked(features, lengths, 10, 8) == 0
    assert hidden.any(dim=(1, 2)).sum() >= 5  # a stretch may have width 0, but hardly all of one utterance
    bins, frames = hidden.all(dim=1).sum(1), hidden.all(dim=2).sum(1)
    assert bins.max() <= 2 * 9
    assert frames.max() <= 2 * 7
    assert not hidden.all(dim=2)[2, 30:].any()


LENGTHS = torch.tensor([40, 20, 30])


def ramps() -> torch.Tensor:
    """Features (3, 40, 8) that rise by one a frame and by a hundred a bin, zero padded."""
    values = torch.arange(40.0)[:, None] + 100 * torch.arange(8.0)
    return values.expand(3, 40, 8) * (torch.arange(40) < LENGTHS[:, None]).unsqueeze(2)


def test_speed_changes_lengths_and_keeps_what_is_said():
    torch.manual_seed(0)
    found, lengths = warped(ramps(), LENGTHS, speed=0.5, tract=0.0)
    assert found.shape[0::2] == (3, 8) and lengths.max() <= found.shape[1] < lengths.max() + 32
    assert found.shape[1] % 32 == 0, "few shapes, for each of which kernels are kept"
    assert lengths.tolist() != LENGTHS.tolist()
    for values, length, before in zip(found, lengths, LENGTHS, strict=True):
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
    found, lengths = warped(ramps(), LENGTHS, speed=0.0, tract=0.2)
    assert lengths.tolist() == LENGTHS.tolist()
    assert len({round(float(each), 3) for each in found[:, 0, 1]}) == 3  # a stretch an utterance
    assert all(59 <= each <= 141 for each in found[:, 0, 1])  # 669 Hz, a fifth less or more, in bins of 5 mel


def test_nothing_changes_in_evaluation_or_where_nothing_is_asked():
    asked = {"speed": 0.2, "tract": 0.2, "noise": 0.3, "mask_bins": 10, "mask_frames": 8}
    given, none = (torch.randn(3, 61, 80), torch.tensor([61, 50, 40])), dict.fromkeys(asked, 0)
    plain, changing = (SpeechModel(replace(CONV, dropout=0.0, **each)) for each in (none, asked))
    changing.load_state_dict(plain.state_dict())
    for is_training, is_same in ((False, True), (True, False)):
        outputs = [model.train(is_training)(*given) for model in (plain, changing)]
        assert all(map(torch.equal, *outputs)) == is_same
        assert torch.equal(outputs[0][1], torch.tensor([16, 13, 10]))


def test_noise_raises_colours_and_disturbs():
    torch.manual_seed(0)
    silence = torch.zeros(200, 50, 8)
    heard = disturbed(silence, torch.full((200,), 50), 0.3)
    assert heard.mean((1, 2)).std() == pytest.approx(0.3, rel=0.2)  # loudness, an utterance
    assert (heard[:, :, -1] - heard[:, :, 0]).mean(1).std() == pytest.approx(0.6, rel=0.2)  # colour, from -1 to 1
    noise = (heard - heard.mean(1, keepdim=True)).std((1, 2))  # a frame and bin
    assert 0.2 < noise.max() <= 0.31 and noise.min() < 0.1
    heard = disturbed(torch.zeros(2, 50, 8), torch.tensor([50, 20]), 0.3)
    assert heard[0].all() and heard[1, :20].all() and not heard[1, 20:].any(), "padding stays zero"
