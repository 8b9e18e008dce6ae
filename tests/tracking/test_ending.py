from __future__ import annotations

import pytest

from labkit.tracking.ending import unreached


@pytest.mark.parametrize(
    ("status", "ended_by", "kind"),
    [
        *(("failed", word, "failed") for word in ("diverged", "error", "exit", "refused")),
        *(("done", word, "failed") for word in ("max_epochs", "patience", "script", "exit")),
        *(("done", word, "censored") for word in ("target", "max_seconds", "profiled")),
        *((status, None, "censored") for status in ("running", "interrupted", "stopped", "paused")),
    ],
)
def test_what_would_never_have_arrived_has_failed_and_what_was_cut_off_is_censored(status, ended_by, kind):
    assert unreached(status, {"ended_by": ended_by}, None) == kind


def test_of_a_record_without_that_word_its_result_says_what_ended_it():
    assert unreached("done", {"target_reached": True}, None) == "censored"
    assert unreached("done", {"wall_s": 61.0}, 60.0) == "censored"
    assert unreached("done", {"wall_s": 12.0}, 60.0) == "failed"
