"""Outputs a second that suit the speech of a training split."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from labkit.data.speech import SpeechSplit
from labkit.data.speech.prepared import fitting_resolution


def split_of(*frames: int) -> SpeechSplit:
    """Utterances of "three", which needs six outputs, in so many frames each."""
    return SpeechSplit(np.array(frames, np.int32), ["three"] * len(frames), ["ann"] * len(frames), np.zeros((0, 80)))


@pytest.mark.parametrize(("frames", "strides"), [(24, (2, 2)), (21, (2, 2)), (20, (2, 1)), (11, (2, 1)), (10, (1, 1))])
def test_the_coarsest_strides_that_leave_room_for_every_character_are_taken(frames, strides):
    found = fitting_resolution(split_of(*[frames] * 10), (2, 2))
    assert found.strides == strides
    assert ("too fast" in found.words) == (strides != (2, 2))


def test_one_fast_talker_costs_that_utterance_alone():
    found = fitting_resolution(split_of(*[40] * 199, 12), (2, 2))
    assert found.strides == (2, 2)
    assert_array_equal(found.kept, np.arange(199))
    assert "1 of 200 training utterances" in found.words


def test_more_than_a_hundredth_of_fast_talkers_make_outputs_finer():
    found = fitting_resolution(split_of(*[40] * 95, *[12] * 5), (2, 2))
    assert found.strides == (2, 1)
    assert len(found.kept) == 100
    assert "every 40 ms" in found.words and "every 20 ms" in found.words
