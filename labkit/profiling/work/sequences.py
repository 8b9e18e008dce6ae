"""What recurrent layers and the loss of CTC have to do: formulas of `labkit.profiling.work.formulas`.

Shapes: T steps, B sequences, I inputs of a step, H state, D directions, G gates; of CTC: L characters of a transcript,
C of the alphabet. Of layers the products alone count, 2 T B G H (I + H): as with a bias, what gates and cells add is
not counted, of an LSTM some 20 a step for each of H, beside 8 (I + H).
"""

from __future__ import annotations

from math import prod

from labkit.profiling.work.inputs import Inputs, Work

GATES = {0: 1, 1: 1, 2: 4, 3: 3}
"""Of a cell, by cuDNN's cudnnRNNMode_t: ReLU, tanh, LSTM, GRU."""
LOG_SUM = 13
"""Of CTC's recursion in logarithms, for a state and frame: log(eᵃ + eᵇ + eᶜ) + log p, the largest of the three taken
out and put back: 2 maxima, 3 subtractions, 3 exponentials, 2 additions, a logarithm and 2 additions."""
STATE_GRADIENT = 9
"""Of CTC's gradient, for a state and frame: log α + log β, and log(eᵃ + eᵇ) to add it to its character's: an addition;
a maximum, 2 subtractions, 2 exponentials, an addition, a logarithm and an addition."""
CHARACTER_GRADIENT = 6
"""Of CTC's gradient, for a character and frame: (p − exp(s + loss − log p)) times the loss' gradient: 2 exponentials,
an addition, 2 subtractions, a multiplication."""


def onednn_layer(inputs: Inputs) -> Work:
    """One layer in one direction over x (T, B, I), with weights (G H, I) and (G H, H), biases and state.

    What it keeps for the backward pass cannot be told from its inputs.
    """
    steps, flop = _onednn(inputs)
    written = steps * inputs.shapes[2][1] * inputs.element() + inputs.size(5) + inputs.size(6)
    return Work(flop, sum(map(inputs.size, range(7))) + written)


def onednn_layer_backward(inputs: Inputs) -> Work:
    """A product for the gradient of each of its factors, inputs and weights, so twice what the layer does."""
    moved = sum(map(inputs.size, inputs.tensors())) + sum(map(inputs.size, range(7)))
    return Work(2 * _onednn(inputs)[1], moved)


def _onednn(inputs: Inputs) -> tuple[int, int]:
    x, of_input, of_state = inputs.shapes[:3]
    return prod(x[:-1]), 2 * prod(x[:-1]) * (prod(of_input) + prod(of_state))


def cudnn_layers(inputs: Inputs) -> Work:
    """All layers and directions over x (T, B, I), or (N, I) where sequences are packed."""
    steps, weights, biases, out = _cudnn(inputs, first=6)
    moved = (steps * out + weights + biases) * inputs.element()
    return Work(2 * steps * weights, inputs.size(0) + moved + 2 * _given(inputs, 4, 5))


def cudnn_layers_backward(inputs: Inputs) -> Work:
    """The gradient of the inputs, and where it is asked for, that of the weights: each costs what the layers do."""
    steps, weights, biases, _ = _cudnn(inputs, first=10)
    of_weights = inputs.value(21)[3]
    moved = 2 * inputs.size(0) + _given(inputs, 4, 5, 6, 7, 8, 9, 20) + _given(inputs, 4, 5)
    moved += (1 + of_weights) * (weights + biases) * inputs.element()
    return Work(2 * steps * weights * (1 + of_weights), moved)


def _cudnn(inputs: Inputs, first: int) -> tuple[int, int, int, int]:
    """Steps, weights, biases, and outputs of a step; the arguments of the layers' form begin at `first`.

    Of form, as the list of weights has no shapes where it is long.
    """
    mode, hidden, projected, layers = (inputs.value(first + place) for place in range(4))
    directions = 2 if inputs.value(first + 7) else 1
    *steps, width = inputs.shapes[0]
    out = projected or hidden
    widths = [width, *[directions * out] * (layers - 1)]
    weights = directions * sum(GATES[mode] * hidden * (each + out) + projected * hidden for each in widths)
    has_biases = inputs.value(2) >= 4  # weights of a layer: two, two biases, a projection
    return prod(steps), weights, has_biases * 2 * GATES[mode] * hidden * directions * layers, directions * out


def _given(inputs: Inputs, *places: int) -> int:
    """Bytes of those that are tensors, not None."""
    return sum(inputs.size(place) for place in places if inputs.types[place])


def fused_lstm_cell(inputs: Inputs) -> Work:
    """Gates (B, 4 H) of inputs and of the state, state (B, H): σ or tanh of four sums, f c + i g, o tanh(c)."""
    return _fused_cell(inputs, gates=4, flop_each=4 * 2 + 3 + 2, written=2)


def fused_gru_cell(inputs: Inputs) -> Work:
    """Gates (B, 3 H) of inputs and of the state, state (B, H): σ of two sums, n = tanh(a + r b), n + z (h − n)."""
    return _fused_cell(inputs, gates=3, flop_each=2 * 2 + 3 + 3, written=1)


def _fused_cell(inputs: Inputs, gates: int, flop_each: int, written: int) -> Work:
    biases = _given(inputs, 3, 4)
    read = sum(map(inputs.size, range(3))) + biases
    return Work(prod(inputs.shapes[2]) * (flop_each + 2 * gates * bool(biases)), read + written * inputs.size(2))


def ctc(inputs: Inputs) -> Work:
    """The forward recursion (Graves et al., ICML 2006, §4.1) over log-probabilities (T, B, C).

    An utterance of T frames and L characters has 2 L + 1 states, blanks between and around the characters, whose α is a
    log of a sum of three at each frame after the first: `LOG_SUM` (2 L + 1) (T − 1). Written are α (B, T, 2 L + 1) and
    the losses. Where lengths were not written down, as those in tensors or of more than 30 utterances are not, all
    count as the longest.
    """
    utterances, (frames, batch, _) = _utterances(inputs, first=0), inputs.shapes[0]
    alpha = batch * frames * (2 * max(length for _, length in utterances) + 1)
    return Work(_recursion(utterances), inputs.size(0) + inputs.size(1) + (alpha + batch) * inputs.element())


def ctc_backward(inputs: Inputs) -> Work:
    """The backward recursion, β, as long as the forward one, and of both the gradient (T, B, C)."""
    utterances = _utterances(inputs, first=1)
    of_states = sum(frames * (2 * length + 1) for frames, length in utterances)
    of_characters = inputs.shapes[1][2] * sum(frames for frames, _ in utterances)
    flop = _recursion(utterances) + STATE_GRADIENT * of_states + CHARACTER_GRADIENT * of_characters
    return Work(flop, sum(map(inputs.size, inputs.tensors())) + inputs.size(1))


def _recursion(utterances: list[tuple[int, int]]) -> int:
    return LOG_SUM * sum((2 * length + 1) * max(0, frames - 1) for frames, length in utterances)


def _utterances(inputs: Inputs, first: int) -> list[tuple[int, int]]:
    """Frames and characters of each; log-probabilities, targets, and both lengths stand from `first` on."""
    (most_frames, batch, _), of_targets = inputs.shapes[first : first + 2]
    longest = of_targets[1] if len(of_targets) == 2 else of_targets[0] // batch  # (B, L), or one after another
    known = [
        inputs.value(place) if inputs.values[place] else [most] * batch
        for place, most in ((first + 2, most_frames), (first + 3, longest))
    ]
    return list(zip(*known, strict=True))
