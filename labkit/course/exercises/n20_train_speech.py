"""Exercises of 20_train_speech."""

from labkit.course.exercise import Exercise

EXERCISES = {
    "20.ctc": Exercise(
        "three",
        hint="First merge equal neighbours, then drop the blanks, in that order.",
        explanation="Merged it is `-th-re-e`, and without blanks `three`: the blank kept the two e apart.",
        mistakes={
            "thre": "Merge first: the blank between two letters keeps them apart until the repeats are gone.",
            "tthreeeee": "Equal neighbours are one letter: merge them first.",
            "-th-re-e": "Merged, and right so far: now drop the blanks.",
        },
    ),
    "20.outputs": Exercise(
        12,
        hint="One output for each character, and a blank wherever two equal ones follow each other.",
        explanation="Eleven characters with the space, and one blank between the two e of three.",
        mistakes={
            11: "Two equal letters in a row need a blank between them.",
            10: "The space is a character too, and two equal letters need a blank between them.",
            21: "Blanks may stand between all letters, but need to only between equal ones.",
        },
    ),
    "20.wer": Exercise(
        2 / 3,
        hint="Count the words inserted, deleted or replaced, and divide by the words of the correct text.",
        explanation="`a` was inserted and `nine` replaced: two errors for three words.",
        mistakes={
            2 / 4: "Divide by the words of the correct text, not of the one that was read.",
            1 / 3: "The word too many is an error, too.",
            3 / 3: "`start` and `job` were read right; they only stand at other places.",
            66.7: "As a share, not in per cent.",
        },
    ),
}
