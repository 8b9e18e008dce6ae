"""Exercises of 41_when_a_neighbour_fails."""

from labkit.course.exercise import Exercise

EXERCISES = {
    "41.blast": Exercise(
        3,
        hint="Begin with the GPU of the fault. Which others does it share a client with? All of their "
        "clients have to exit.",
        explanation="B and C use GPU 0. C also uses GPU 1, so the fault is contained in these two, and D has to exit "
        "with them. E goes on.",
        mistakes={
            2: "B and C are on the GPU of the fault. But C uses another one, too: what of the clients there?",
            4: "One of the other four shares no GPU with any that is touched.",
        },
    ),
    "41.restart": Exercise(
        200 / 4,
        unit="hours",
        hint="In 200 hours, how many fatal faults do the four jobs have together? Each of them stops all four.",
        explanation="Rates add up: who shares under MPS fails as often as all of its neighbours together, and has to "
        "keep checkpoints for that.",
        mistakes={
            200: "That is how often its own faults stop it. Its neighbours' stop it, too.",
            800: "More jobs make faults more frequent, not rarer.",
        },
    ),
    "41.choose": Exercise(
        "mig",
        hint="Which of them gives each team memory, cache and multiprocessors of its own?",
        explanation="A fault in one instance does not touch the others; what that costs is the freedom to use what the "
        "neighbour leaves idle.",
        choices=("naive", "mps", "mig"),
        mistakes={
            "mps": "Under MPS a fatal fault of one client ends all that share its GPU.",
            "naive": "No isolation of memory or faults is promised to those who take turns on a GPU.",
        },
    ),
}
