"""The studies of the recogniser that ship: each is read, and depths are compared at equal parameters."""

from dataclasses import replace

import pytest

from labkit.data.speech import Alphabet
from labkit.jobs import get_preset
from labkit.launch.sweep_file import read_sweep_file
from labkit.models import SpeechConfig, SpeechModel

STUDIES = {"speech_layers": {"layers", "hidden"}, "speech_features": {"features"}, "speech_precision": {"precision"}}


@pytest.mark.parametrize("name", STUDIES)
def test_a_study_of_the_recogniser_has_three_seeds_of_what_varies(name):
    sweep = read_sweep_file(name)
    assert {cell.seed for cell in sweep.cells} == {0, 1, 2}
    assert {setting for cell in sweep.cells for setting in cell.settings} == STUDIES[name]


def test_depths_have_equal_parameters():
    shape = SpeechConfig(vocabulary=len(Alphabet()), **get_preset("speech", "budget-m5-mini").model)
    sizes = {}
    for cell in read_sweep_file("speech_layers").cells:
        model = SpeechModel(replace(shape, layers=int(cell.settings["layers"]), hidden=int(cell.settings["hidden"])))
        sizes[cell.settings["layers"]] = sum(weights.numel() for weights in model.parameters())
    assert sorted(map(int, sizes)) == [1, 3, 5, 7]
    assert max(sizes.values()) <= 1.05 * min(sizes.values())
