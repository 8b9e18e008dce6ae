from .index import KINDS as KINDS, Index as Index
from .instruments.ladder import (
    INSTRUMENTS as INSTRUMENTS,
    Number as Number,
    choose_instrument as choose_instrument,
    measure as measure,
    why_not_callgrind as why_not_callgrind,
    why_not_perf as why_not_perf,
)
from .instruments.replay import (
    LINE_BYTES as LINE_BYTES,
    Logged as Logged,
    Replay as Replay,
    lru_misses as lru_misses,
    replay as replay,
)
from .kernels import FULL as FULL, KEY_END as KEY_END, MISSING as MISSING, NO_KEY as NO_KEY, plain as plain
from .keys import DISTRIBUTIONS as DISTRIBUTIONS, check_keys as check_keys, make_keys as make_keys
from .workloads import PATTERNS as PATTERNS, Requests as Requests, Workload as Workload, make_requests as make_requests
