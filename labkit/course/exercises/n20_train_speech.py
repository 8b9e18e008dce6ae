"""Exercises of 20_train_speech."""

from labkit.course.exercise import INTEGER, NUMBER, TEXT, Exercise, Mistake

EXERCISES = (
    Exercise(
        "20.ctc",
        TEXT,
        "three",
        hint="First merge equal neighbours, then drop the blanks, in that order.",
        explanation="Merged it is `-th-re-e`, and without blanks `three`: the blank kept the two e apart.",
        mistakes=(
            Mistake("thre", "Merge first: the blank between two letters keeps them apart until the repeats are gone."),
            Mistake("tthreeeee", "Equal neighbours are one letter: merge them first."),
            Mistake("-th-re-e", "Merged, and right so far: now drop the blanks."),
        ),
    ),
    Exercise(
        "20.outputs",
        INTEGER,
        12,
        hint="One output for each character, and a blank wherever two equal ones follow each other.",
        explanation="Eleven characters with the space, and one blank between the two e of three.",
        mistakes=(
            Mistake(11, "Two equal letters in a row need a blank between them."),
            Mistake(10, "The space is a character too, and two equal letters need a blank between them."),
            Mistake(21, "Blanks may stand between all letters, but need to only between equal ones."),
        ),
    ),
    Exercise(
        "20.wer",
        NUMBER,
        2 / 3,
        hint="Count the words inserted, deleted or replaced, and divide by the words of the correct text.",
        explanation="`a` was inserted and `nine` replaced: two errors for three words.",
        mistakes=(
            Mistake(2 / 4, "Divide by the words of the correct text, not of the one that was read."),
            Mistake(1 / 3, "The word too many is an error, too."),
            Mistake(3 / 3, "`start` and `job` were read right; they only stand at other places."),
            Mistake(66.7, "As a share, not in per cent."),
        ),
    ),
)
