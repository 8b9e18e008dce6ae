"""The engine: lists of launches go in, runs and one state file come out.

A `Launch` is a run that is wanted: what its process runs (`job`, a `ScriptCommand` with its budget), how it shares the
device (`mode`), and with what it starts `together`, at one barrier. `Launches` is a list of them in a folder, in the
order in which they run, with a `Part` for what became of each, in one format: a file of JSON lines (`launches.jsonl`)
whose last line about a launch counts. An `Engine` runs what waits in a list, through an executor
(`labkit.process.SupervisedJobs`: this machine), and leaves no process however it ends. `resume` makes what is not done
wait again.

Sweeps, tours, seeds and energy trials here, mixes and queues in `labkit.sharing`, and probes of memory are makers of
such lists and readers of that file. Each overrides of the engine only what is its own: what may start now, what a
process gets, what its end means.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
