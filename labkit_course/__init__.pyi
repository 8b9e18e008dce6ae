from .build import configure as configure, drift as drift, write as write
from .checks import (
    check as check,
    draw as draw,
    explain as explain,
    mine as mine,
    model_answer as model_answer,
    reference as reference,
)
from .claims import (
    all_claims as all_claims,
    claim as claim,
    collect as collect,
    page as page,
    read_evidence as read_evidence,
    write_evidence as write_evidence,
)
from .drawing import drawing as drawing
from .grading import sandbox as sandbox
from .lab import labs_on as labs_on
from .notebook_file import authored as authored
from .progress import (
    guess as guess,
    kept as kept,
    literal as literal,
    progress_file as progress_file,
    results as results,
    reveal as reveal,
    score_course as score_course,
    score_notebook as score_notebook,
)
from .runner import PROFILES as PROFILES, run_notebooks as run_notebooks
from .site import build_site as build_site
from .slides import build_slides as build_slides
from .submission import hand_in as hand_in, status as status
from .timing import paired_times as paired_times, require_parts as require_parts, undisturbed as undisturbed
