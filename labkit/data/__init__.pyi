from . import clicks as clicks, speech as speech
from .catalog import (
    DOWNLOADS as DOWNLOADS,
    download as download,
    fetch as fetch,
    kind_of as kind_of,
    list_datasets as list_datasets,
)
from .store import (
    POLICIES as POLICIES,
    POLICY_WORDS as POLICY_WORDS,
    UNASKED as UNASKED,
    BadRows as BadRows,
    Progress as Progress,
    prepared_root as prepared_root,
)
