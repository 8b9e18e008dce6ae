from .decoding import align as align, fitted_beam as fitted_beam
from .recogniser import (
    Recogniser as Recogniser,
    Stream as Stream,
    newest_recogniser as newest_recogniser,
    read_recogniser as read_recogniser,
)
from .transcripts import (
    MANIFESTS as MANIFESTS,
    Recording as Recording,
    Tally as Tally,
    Transcribed as Transcribed,
    find_recordings as find_recordings,
    from_file as from_file,
    transcribe as transcribe,
)
