from .cached import CachedStore as CachedStore, CacheIndex as CacheIndex
from .disk import DiskStore as DiskStore
from .row_store import HostStore as HostStore
from .settings import (
    CACHE_SHARE as CACHE_SHARE,
    Placement as Placement,
    described as described,
    flag_text as flag_text,
    row_width as row_width,
)
from .sharded import ShardedTables as ShardedTables, refuse_unfused as refuse_unfused
from .tables import (
    PlacedOptimiser as PlacedOptimiser,
    PlacedTables as PlacedTables,
    ahead as ahead,
    placed_tables as placed_tables,
)
