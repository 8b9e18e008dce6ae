import re
from pathlib import Path

from labkit.telemetry.counters import vocabulary

ROOT = Path(__file__).parents[2]


def test_the_documentation_is_the_vocabulary():
    for counter in vocabulary():
        assert counter.definition.endswith(".") and counter.not_said.endswith("."), counter.name
        assert set(counter.scopes) <= {"host", "process", "device", "mig"}
    text = (ROOT / "docs" / "counters.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| ([\w, ]+) \| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", text, re.MULTILINE)
    assert [tuple(cell.strip() for cell in row) for row in rows] == [
        (c.name, ", ".join(c.scopes), c.unit, c.definition, c.not_said) for c in vocabulary()
    ]
