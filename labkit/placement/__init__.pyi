from .cached import CachedStore as CachedStore
from .choice import ahead as ahead, placed_tables as placed_tables
from .disk import DiskStore as DiskStore
from .hit_rate_table import (
    expected_hit_rate as expected_hit_rate,
    hit_rates as hit_rates,
    simulate_hit_rate as simulate_hit_rate,
    zipf_shares as zipf_shares,
)
from .row_store import HostStore as HostStore
from .settings import (
    CACHE_SHARE as CACHE_SHARE,
    Placement as Placement,
    described as described,
    flag_text as flag_text,
    row_width as row_width,
)
from .tables import PlacedOptimiser as PlacedOptimiser, PlacedTables as PlacedTables
