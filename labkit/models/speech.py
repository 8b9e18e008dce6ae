"""Speech recognisers that write characters with CTC (Graves et al., 2006), and the augmentation of their training.

Shapes: B batch, T frames of F = 80 log-mel bins, T' outputs, C channels, V alphabet incl. blank (id 0).
Features have mean 0 and variance 1 per bin.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from labkit import UserError

KINDS = ("conv", "lstm", "bilstm")
HIGHEST_HZ = 8000.0
FRAMES_MULTIPLE = 32
"""Batches of changed speed are padded to a multiple of this, because a CPU keeps kernels for each shape"""
STEP = math.log(6.4) / 27
"""Logarithm of Hz per mel above 1,000 Hz"""


@dataclass(frozen=True)
class SpeechConfig:
    """The shape of one recogniser."""

    vocabulary: int
    """Characters of the alphabet, including the blank"""
    kind: str
    """"conv" (residual convolutions only), "lstm" or "bilstm" (convolutions, then LSTMs in one or both directions)"""
    channels: int
    """Width of the output of the convolutions"""
    layers: int
    """Number of residual blocks ("conv") or recurrent layers"""
    hidden: int = 0
    """Width of the recurrent layers, per direction"""
    kernel: int = 5
    """Width of a convolution, in frames"""
    strides: tuple[int, ...] = (2, 2)
    """Stride of each subsampling convolution, in frames"""
    maps: tuple[int, ...] = ()
    """Width of each subsampling convolution over frames and bins, as over an image; () for convolutions over frames"""
    dropout: float = 0.05
    """Probability of dropout after each layer"""
    mask_bins: int = 0
    """Stretches of bins masked in training are narrower than this; 0 masks none"""
    mask_frames: int = 0
    """Stretches of frames masked in training are shorter than this; 0 masks none"""
    speed: float = 0.0
    """Largest change of the speed of training utterances, as a share"""
    tract: float = 0.0
    """Largest stretch of their frequencies, as by other vocal tracts, as a share"""
    noise: float = 0.0
    """Largest deviation of the noise added to them, in units of the features"""
    mel_bins: int = 80
    """Numbers per frame: log-mel bins"""

    def __post_init__(self):
        if self.maps and len(self.maps) != len(self.strides):
            raise UserError(
                f"strides {self.strides} and maps {self.maps} of a speech model differ in length: give both for each "
                "convolution."
            )
        if self.kind not in KINDS:
            raise UserError(f"the kind of the speech model is {self.kind!r}: choose one of {', '.join(KINDS)}.")

    @property
    def frames_an_output(self) -> int:
        """Input frames per CTC output."""
        return math.prod(self.strides)


class ConvBlock(nn.Module):
    """Convolution over time, batch norm, ReLU, dropout; a shortcut if input and output have the same shape.

    In evaluation no padded frame leaks into a real one. In training the statistics of the batch norm include padded
    frames.
    """

    def __init__(self, before: int, after: int, kernel: int, stride: int, dropout: float):
        super().__init__()
        self.stride = stride
        self.residual = before == after and stride == 1
        self.conv = nn.Conv1d(before, after, kernel, stride=stride, padding=kernel // 2, bias=False)
        self.norm = nn.BatchNorm1d(after)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Return (B, after, T/stride) for (B, before, T); `mask` (B, 1, T/stride) keeps padded frames at zero."""
        y = self.dropout(F.relu(self.norm(self.conv(x)))) * mask
        return x + y if self.residual else y  # the shortcut is already masked


class ImageConv(nn.Module):
    """3 × 3 convolution over frames and bins, ReLU.

    It recognises a pattern at any position, and so also a little higher or lower in another speaker's voice.
    """

    def __init__(self, before: int, after: int, stride: int):
        super().__init__()
        self.stride = stride
        self.conv = nn.Conv2d(before, after, 3, stride=(stride, 2), padding=1)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Return (B, after, T/stride, F/2) for (B, before, T, F); `mask` (B, 1, T/stride) keeps padded frames at 0."""
        return F.relu(self.conv(x)) * mask.unsqueeze(3)


class BothWays(nn.LSTM):
    """One LSTM layer in both directions, then dropout."""

    def __init__(self, before: int, hidden: int, dropout: float):
        super().__init__(before, hidden, batch_first=True, bidirectional=True)
        self.after = nn.Dropout(dropout)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        """Return (B, T', 2 hidden) for (B, T', C), of which `lengths` (B,) are real."""
        # packed, so that the backward direction begins at the end of each utterance, not of its padding
        packed = pack_padded_sequence(x, lengths.cpu(), batch_first=True, enforce_sorted=False)
        y, _ = pad_packed_sequence(super().forward(packed)[0], batch_first=True, total_length=x.shape[1])
        return self.after(y)


def warped(features: Tensor, lengths: Tensor, speed: float, tract: float) -> tuple[Tensor, Tensor]:
    """Features (B, T', F) of another speed and with stretched frequencies (on their mel scale), and lengths (B,).

    Speed as in Ko et al. (Interspeech 2015), vocal tracts as in Jaitly and Hinton (2013), both by resampling features
    (B, T, F), zero padded. Factors are drawn from 1 - speed to 1 + speed, and from 1 - tract to 1 + tract.
    """
    if not (speed or tract):
        return features, lengths
    size, _, bins = features.shape
    on = features.device
    speeds = 1 + speed * (2 * torch.rand(size, device=on) - 1)
    tracts = 1 + tract * (2 * torch.rand(size, 1, device=on) - 1)
    new = (lengths / speeds).round().long().clamp(min=1)
    longest = -(-int(new.max()) // FRAMES_MULTIPLE) * FRAMES_MULTIPLE
    times = speeds[:, None] * torch.arange(longest, device=on)  # (B, T')
    mels = torch.arange(1, bins + 1, device=on) * (_mel(torch.tensor(HIGHEST_HZ)) / (bins + 1)).item()  # (F,)
    places = _mel(tracts * _hz(mels)) / mels[0] - 1  # (B, F)
    kept = torch.arange(times.shape[1], device=on) < new[:, None]
    # frequencies by a product: an index would transpose the memory layout, and the convolutions would copy it
    return (_at(features, times) * kept.unsqueeze(2)) @ _between(places, bins), new


def _mel(hz: Tensor) -> Tensor:
    """Slaney's mel scale, as in the features: linear up to 1,000 Hz, then logarithmic."""
    return torch.where(hz < 1000, hz * 3 / 200, 15 + (hz.clamp(min=1000) / 1000).log() / STEP)


def _hz(mels: Tensor) -> Tensor:
    return torch.where(mels < 15, mels * 200 / 3, 1000 * (STEP * (mels - 15)).exp())


def _between(places: Tensor, bins: int) -> Tensor:
    """Weights (B, F, M) that interpolate features (B, T, F) at places (B, M) between bins, clamped to the ends."""
    places = places.clamp(0, bins - 1).unsqueeze(1)
    numbers = torch.arange(bins, device=places.device)[:, None]
    return (1 - (numbers - places).abs()).clamp(min=0)


def _at(values: Tensor, places: Tensor) -> Tensor:
    """Interpolate values (B, N, C) at places (B, M) between them, clamped to the ends: (B, M, C)."""
    places = places.clamp(0, values.shape[1] - 1)
    below = places.long()
    share = (places - below).unsqueeze(2)
    rows = torch.arange(len(values), device=values.device)[:, None]
    return torch.lerp(values[rows, below], values[rows, (below + 1).clamp(max=values.shape[1] - 1)], share)


def disturbed(features: Tensor, lengths: Tensor, deviation: float) -> Tensor:
    """Features (B, T, F) with noise, and a tilt and a shift of each utterance's spectrum, as of another room.

    `deviation` is that of the shift and the tilt, and the largest of the noise, in units of the features. These stay
    zero padded beyond the utterances' `lengths` (B,).
    """
    if not deviation:
        return features
    size, frames, bins = features.shape
    on = features.device
    heard = _mask(lengths, frames).transpose(1, 2)  # (B, T, 1)
    loudness, colour = deviation * torch.randn(2, size, 1, 1, device=on)
    tilt = colour * torch.linspace(-1, 1, bins, device=on)
    noise = deviation * torch.rand(size, 1, 1, device=on) * torch.randn_like(features)
    return features + heard * (loudness + tilt + noise)


def masked(features: Tensor, lengths: Tensor, mask_bins: int, mask_frames: int) -> Tensor:
    """Features (B, T, F) with two stretches of bins and two of frames of each utterance at zero, the features' mean.

    The masks of SpecAugment (Park et al., Interspeech 2019, §2). `mask_bins` and `mask_frames` are one more than the
    widest stretch, and 0 disables that direction. Stretches of frames are within the utterances' `lengths` (B,).
    """
    _, frames, bins = features.shape
    if mask_bins:
        covered = _stretches(bins, torch.full_like(lengths, bins), mask_bins)
        features = features.masked_fill(covered.unsqueeze(1), 0.0)
    if mask_frames:
        features = features.masked_fill(_stretches(frames, lengths, mask_frames).unsqueeze(2), 0.0)
    return features


def _stretches(size: int, lengths: Tensor, widest: int) -> Tensor:
    """The positions inside one of two stretches: bool (B, size)."""
    shape = (2, len(lengths), 1)
    width = torch.randint(widest, shape, device=lengths.device)
    start = (torch.rand(shape, device=lengths.device) * (lengths.view(1, -1, 1) - width).clamp(min=1)).long()
    place = torch.arange(size, device=lengths.device)
    return ((place >= start) & (place < start + width)).any(0)


class SpeechModel(nn.Module):
    """Subsampling convolutions, then residual convolutions or recurrent layers, then a linear layer over characters."""

    def __init__(
        self, config: SpeechConfig, *, block: type[nn.Module] = ConvBlock, both_ways: type[nn.Module] = BothWays
    ):
        """Build the model; `labkit.fast` has faster equivalents of `block` and `both_ways`."""
        super().__init__()
        self.config = config
        width = config.channels
        self.images: Any = nn.ModuleList(map(ImageConv, (1, *config.maps[:-1]), config.maps, config.strides))
        if config.maps:  # all values of a frame become its channels
            of_a_frame = config.maps[-1] * math.ceil(config.mel_bins / 2 ** len(config.maps))
            self.subsample: Any = nn.ModuleList([block(of_a_frame, width, 1, 1, config.dropout)])
        else:
            widths = [config.mel_bins] + [width] * len(config.strides)
            self.subsample = nn.ModuleList(
                block(before, after, config.kernel, stride, config.dropout)
                for before, after, stride in zip(widths, widths[1:], config.strides, strict=False)
            )
        if config.kind == "conv":
            self.blocks = nn.ModuleList(
                block(config.channels, config.channels, config.kernel, 1, config.dropout) for _ in range(config.layers)
            )
        # torch applies dropout between recurrent layers, and warns if there is only one
        between = config.dropout if config.layers > 1 else 0.0
        recurrent = {"num_layers": config.layers, "batch_first": True, "dropout": between}
        if config.kind == "lstm":
            self.lstm = nn.LSTM(config.channels, config.hidden, **recurrent)
            width = config.hidden
        if config.kind == "bilstm":
            widths = [config.channels] + [2 * config.hidden] * (config.layers - 1)
            self.bilstm = nn.ModuleList(both_ways(before, config.hidden, config.dropout) for before in widths)
            width = 2 * config.hidden
        self.characters = nn.Linear(width, config.vocabulary)

    def forward(self, features: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Return log-probabilities (B, T', V) and their lengths (B,) for log-mel features (B, T, 80), zero padded."""
        if self.training:
            config = self.config
            features, lengths = warped(features, lengths, config.speed, config.tract)
            features = masked(disturbed(features, lengths, config.noise), lengths, config.mask_bins, config.mask_frames)
        x = features.unsqueeze(1)  # (B, 1, T, F)
        for image in self.images:
            lengths = (lengths + image.stride - 1) // image.stride
            x = image(x, _mask(lengths, -(-x.shape[2] // image.stride)))  # (B, C, T', F')
        x = bins_of(x)
        for block in self.subsample:
            lengths = (lengths + block.stride - 1) // block.stride
            x = block(x, _mask(lengths, -(-x.shape[2] // block.stride)))
        if self.config.kind == "conv":
            mask = _mask(lengths, x.shape[2])
            for block in self.blocks:
                x = block(x, mask)
        x = x.transpose(1, 2)  # (B, T', C)
        if self.config.kind == "lstm":
            x, _ = self.lstm(x)
        if self.config.kind == "bilstm":
            for layer in self.bilstm:
                x = layer(x, lengths)
        return F.log_softmax(self.characters(x).float(), dim=2), lengths


def bins_of(image: Tensor) -> Tensor:
    """Return (B, F C, T) of (B, C, T, F)."""
    return image.permute(0, 2, 3, 1).flatten(2).transpose(1, 2)


def _mask(lengths: Tensor, frames: int) -> Tensor:
    """True for frames that are not padding: bool (B, 1, frames)."""
    return (torch.arange(frames, device=lengths.device) < lengths.unsqueeze(1)).unsqueeze(1)
