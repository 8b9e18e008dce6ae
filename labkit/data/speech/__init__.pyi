from .audio import (
    SAMPLE_RATE_HZ as SAMPLE_RATE_HZ,
    SILENT as SILENT,
    SUFFIXES as SUFFIXES,
    decode as decode,
    is_silent as is_silent,
    read_wave as read_wave,
    resample as resample,
)
from .features import (
    KINDS as KINDS,
    Voice as Voice,
    features_of as features_of,
    log_mel as log_mel,
    log_mel_batch as log_mel_batch,
    mel_filters as mel_filters,
)
from .layouts import (
    FIRST_INDEX as FIRST_INDEX,
    RECORDING as RECORDING,
    find_source as find_source,
    read_layout as read_layout,
    read_lines as read_lines,
    read_manifest as read_manifest,
)
from .load import (
    WaveformUtterances as WaveformUtterances,
    fingerprint as fingerprint,
    load_speech as load_speech,
    read_source as read_source,
    refuse_mismatch as refuse_mismatch,
    textbook_loader as textbook_loader,
    usable_utterances as usable_utterances,
    wave_of as wave_of,
)
from .prepared import (
    FRAMES_PER_S as FRAMES_PER_S,
    Batch as Batch,
    BucketedBatches as BucketedBatches,
    ByLength as ByLength,
    Resolution as Resolution,
    SpeechSet as SpeechSet,
    SpeechSplit as SpeechSplit,
    fitting_resolution as fitting_resolution,
)
from .utterance import (
    BLANK as BLANK,
    ENGLISH as ENGLISH,
    SPLITS as SPLITS,
    Alphabet as Alphabet,
    Segment as Segment,
    Source as Source,
    Utterance as Utterance,
    dealing as dealing,
    in_lower_case as in_lower_case,
    outputs_needed as outputs_needed,
    speech_metrics as speech_metrics,
    transcript as transcript,
)
