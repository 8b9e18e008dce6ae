"""A recogniser that hears one way, chunk by chunk: the same outputs as of the whole recording.

Convolutions keep the frames that their next output needs, LSTMs their state. What is heard of a chunk waits for the
frames after it that the convolutions see.

T frames of F bins, T' outputs, C and C' channels, V alphabet with the blank.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labkit.errors import UserError
from labkit.models import SpeechModel, bins_of


class _Frames:
    """The frames that a convolution still has to see; before the first and after the last is silence."""

    def __init__(self, kernel: int, stride: int):
        self.kernel, self.stride = kernel, stride
        self._kept: Tensor | None = None
        """From the first that the next output sees"""

    def push(self, x: Tensor, *, is_last: bool) -> Tensor:
        """Return the frames that those outputs see which x (1, C, T, …) completes, if it completes any."""
        silence = x.new_zeros(1, x.shape[1], self.kernel // 2, *x.shape[3:])
        x = torch.cat([silence if self._kept is None else self._kept, x, *[silence] * is_last], 2)
        outputs = max(0, (x.shape[2] - self.kernel) // self.stride + 1)
        self._kept = x[:, :, outputs * self.stride :]
        return x[:, :, : (outputs - 1) * self.stride + self.kernel if outputs else 0]


class _Image:
    """A convolution over frames and bins, of frames that come in chunks."""

    def __init__(self, image: nn.Module):
        self._conv, self._frames = image.conv, _Frames(image.conv.kernel_size[0], image.stride)

    def push(self, x: Tensor, *, is_last: bool) -> Tensor:
        """Return the outputs (1, C', T', F') that frames (1, C, T, F) complete."""
        seen, conv = self._frames.push(x, is_last=is_last), self._conv
        if not seen.shape[2]:
            return x.new_zeros(1, conv.out_channels, 0, -(-x.shape[3] // conv.stride[1]))
        return F.relu(F.conv2d(seen, conv.weight, conv.bias, conv.stride, (0, conv.padding[1])))


class _Block:
    """A convolution of the recogniser, its norm and its shortcut, over frames that come in chunks."""

    def __init__(self, block: nn.Module):
        self._block, self._weight = block, block.conv.weight.flatten(2)  # (C', C, kernel), of either kernels
        self._frames = _Frames(self._weight.shape[2], block.stride)

    def push(self, x: Tensor, *, is_last: bool) -> Tensor:
        """Return the outputs (1, C', T') that frames (1, C, T) complete."""
        seen, norm, half = self._frames.push(x, is_last=is_last), self._block.norm, self._frames.kernel // 2
        if not seen.shape[2]:
            return x.new_zeros(1, len(self._weight), 0)
        y = F.conv1d(seen, self._weight, stride=self._block.stride)
        y = F.relu(F.batch_norm(y, norm.running_mean, norm.running_var, norm.weight, norm.bias, eps=norm.eps))
        return seen[:, :, half : half + y.shape[2]] + y if self._block.residual else y


class Stream:
    """One recording, heard as it comes."""

    def __init__(self, model: SpeechModel):
        """Begin a recording.

        Raises:
            UserError: the model hears a recording backwards, too.
        """
        kind = model.config.kind
        if kind not in ("conv", "lstm"):
            raise UserError(
                f'a recogniser of kind "{kind}" hears recordings from their end, too, and needs them whole: leave '
                '--stream away, or train one of kind "conv" or "lstm", such as the presets tour and budget-m5.'
            )
        self._model, self._state = model, None
        self._images = [_Image(image) for image in model.images]
        self._blocks = [_Block(block) for block in (*model.subsample, *getattr(model, "blocks", ()))]

    def push(self, features: Tensor) -> Tensor:
        """Return the log-probabilities (T', V) that the next frames (T, F) of the recording complete."""
        return self._pass_on(features, is_last=False)

    def finish(self) -> Tensor:
        """Return the log-probabilities (T', V) of what is left."""
        return self._pass_on(torch.zeros(0, self._model.config.mel_bins), is_last=True)

    @torch.inference_mode()
    def _pass_on(self, features: Tensor, *, is_last: bool) -> Tensor:
        x = features[None, None]  # (1, 1, T, F)
        for image in self._images:
            x = image.push(x, is_last=is_last)
        x = bins_of(x)
        for block in self._blocks:
            x = block.push(x, is_last=is_last)
        x = x.transpose(1, 2)  # (1, T', C)
        if self._model.config.kind == "lstm" and x.shape[1]:
            x, self._state = self._model.lstm(x, self._state)
        elif self._model.config.kind == "lstm":
            x = x.new_zeros(1, 0, self._model.config.hidden)
        return F.log_softmax(self._model.characters(x).float(), dim=2)[0]
