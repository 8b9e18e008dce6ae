from __future__ import annotations

import pytest

from labkit.plots.theme import BACKGROUNDS, INK, PALETTES, contrast, encoding

OKABE_ITO = {"#000000", "#E69F00", "#56B4E9", "#009E73", "#F0E442", "#0072B2", "#D55E00", "#CC79A7"}


@pytest.mark.parametrize("template", PALETTES)
def test_every_colour_is_okabe_and_ito_and_reaches_3_to_1_on_its_background(template):
    for color in PALETTES[template]:
        assert color in OKABE_ITO
        # the ratio as WCAG tools print it, with two decimals: #CC79A7 on white is 3.00
        assert round(contrast(color, BACKGROUNDS[template]), 2) >= 3


@pytest.mark.parametrize("template", PALETTES)
def test_text_reaches_7_to_1(template):
    assert contrast(INK[template], BACKGROUNDS[template]) >= 7


def test_contrast_is_that_of_wcag():
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


def test_thirty_series_all_look_different_and_the_first_five_without_colour():
    looks = [encoding(index) for index in range(30)]
    assert len(set(looks)) == 30
    assert len({(look.dash, look.marker) for look in looks[:5]}) == 5
