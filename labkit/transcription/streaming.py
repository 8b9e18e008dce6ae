"""A recogniser that hears one way, chunk by chunk: the same outputs as of the whole recording.

Convolutions keep the frames that their next output needs, LSTMs their state. What is heard of a chunk waits for the
frames after it that the convolutions see.

T frames of F bins, T' outputs, C channels, V alphabet with the blank.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labkit.errors import UserError
from labkit.models.speech import SpeechModel


class _Convolution:
    """One block of the recogniser over frames that come in chunks."""

    def __init__(self, block: nn.Module):
        self.block = block
        weight = block.conv.weight.flatten(2)  # (C, F, kernel), of either kernels
        self.kernel, self.before = weight.shape[2], weight.shape[1]
        self._kept = torch.zeros(1, self.before, self.kernel // 2)
        """The frames from the first that the next output sees; before the beginning is silence"""

    def push(self, x: Tensor, *, is_last: bool) -> Tensor:
        """Return the outputs (1, C, T') that frames (1, F, T) complete; after the last ones is silence."""
        half, block = self.kernel // 2, self.block
        x = torch.cat([self._kept, x, x.new_zeros(1, self.before, half * is_last)], 2)
        outputs = max(0, (x.shape[2] - self.kernel) // block.stride + 1)
        self._kept = x[:, :, outputs * block.stride :]
        if not outputs:
            return x.new_zeros(1, block.conv.out_channels, 0)
        seen = x[:, :, : (outputs - 1) * block.stride + self.kernel]
        y = F.conv1d(seen, block.conv.weight.flatten(2), stride=block.stride)
        norm = block.norm
        y = F.relu(F.batch_norm(y, norm.running_mean, norm.running_var, norm.weight, norm.bias, eps=norm.eps))
        return seen[:, :, half : half + outputs] + y if block.residual else y


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
        self._blocks = [_Convolution(block) for block in (*model.subsample, *getattr(model, "blocks", ()))]

    def push(self, features: Tensor) -> Tensor:
        """Return the log-probabilities (T', V) that the next frames (T, F) of the recording complete."""
        return self._pass_on(features, is_last=False)

    def finish(self) -> Tensor:
        """Return the log-probabilities (T', V) of what is left."""
        return self._pass_on(torch.zeros(0, self._model.config.mel_bins), is_last=True)

    @torch.inference_mode()
    def _pass_on(self, features: Tensor, *, is_last: bool) -> Tensor:
        x = features.T.unsqueeze(0)  # (1, F, T)
        for block in self._blocks:
            x = block.push(x, is_last=is_last)
        x = x.transpose(1, 2)  # (1, T', C)
        if self._model.config.kind == "lstm" and x.shape[1]:
            x, self._state = self._model.lstm(x, self._state)
        elif self._model.config.kind == "lstm":
            x = x.new_zeros(1, 0, self._model.config.hidden)
        return F.log_softmax(self._model.characters(x).float(), dim=2)[0]
