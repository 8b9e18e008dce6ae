from .page import SCRIPT as SCRIPT, build_section as build_section, render as render, write_report as write_report
from .profile_views import (
    VIEWS as VIEWS,
    operator_texts as operator_texts,
    phase_bars as phase_bars,
    profile_page as profile_page,
    what_to_try as what_to_try,
    write_profile_page as write_profile_page,
)
from .summary_text import (
    HEADINGS as HEADINGS,
    OF_TARGET as OF_TARGET,
    headline as headline,
    notes as notes,
    terminal_frames as terminal_frames,
)
