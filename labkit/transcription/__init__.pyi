from .alignment import align as align
from .decoding import CharacterModel as CharacterModel, beam_search as beam_search
from .errors import ErrorRates as ErrorRates
from .recogniser import (
    Heard as Heard,
    Recogniser as Recogniser,
    newest_recogniser as newest_recogniser,
    read_recogniser as read_recogniser,
)
from .recordings import (
    MANIFESTS as MANIFESTS,
    Recording as Recording,
    find_recordings as find_recordings,
    from_file as from_file,
)
from .streaming import Stream as Stream
from .transcripts import Transcribed as Transcribed, transcribe as transcribe
from .tuning import fitted_beam as fitted_beam
