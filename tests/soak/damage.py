"""Damage as disks, copies, editors and other programs do it to files; the same seed does the same."""

from __future__ import annotations

import gzip
import random
import re
import shutil
from pathlib import Path

VALUE = re.compile(
    rb'"(?:[^"\\\n]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|\b(?:true|false|null)\b|\[[^][]*\]|\{[^{}]*\}'
)
"""Strings, numbers, constants, and lists and objects that hold no other, in text of any format."""
ODD_VALUES = [
    *(b"0", b"-1", b"5", b"1e200", b"1e999", b"NaN", b"-Infinity", b"9007199254740993", b"1" * 5000),
    *(b'""', b'"1"', b'"\\ud800"', b'"\\u0000"', b'"[red]x[/]\\u001b[2J"', b'"../../x"', b'"a text"', b"a,b", b"'"),
    *(b"null", b"true", b"[]", b"{}", b"[1]", b'{"a": 1}', b"[[[]]]", b"", b" ", b"\t", b"\xe9", b"\xff\xfe"),
    *(b"\x00", b"#"),
]


def damaged(content: bytes, draw: random.Random) -> tuple[bytes, str]:
    """The content with one random change, and what that was; half the changes to gzip data are made to its text."""
    if content.startswith(b"\x1f\x8b") and draw.random() < 0.5:
        text, what = damaged(gzip.decompress(content), draw)
        return gzip.compress(text, 1), f"{what}, inside gzip"
    if not content:
        return draw.choice(ODD_VALUES), "something in an empty file"
    at = draw.randrange(len(content))
    values = list(VALUE.finditer(content[:2_000_000])) if b"\0" not in content else []
    lines = content.splitlines(keepends=True)
    ways = ["bit", "cut", "zeros", "insert", "append"] + ["value"] * 6 * bool(values)
    ways += ["twice", "drop", "swap", "line"] * (len(lines) > 1 and b"\0" not in content)
    line, other = draw.randrange(len(lines)), draw.randrange(len(lines))
    match draw.choice(ways):
        case "bit":
            bit = draw.randrange(8)
            changed = bytes([content[at] ^ 1 << bit])
            return content[:at] + changed + content[at + 1 :], f"bit {bit} of byte {at} flipped"
        case "cut":
            return content[:at], f"cut to {at} bytes"
        case "zeros":
            return content[:at] + bytes(16) + content[at + 16 :], f"16 zero bytes over byte {at}"
        case "insert":
            return content[:at] + bytes(3) + content[at:], f"3 zero bytes before byte {at}"
        case "append":
            return content + content[: at + 1], f"its first {at + 1} bytes appended"
        case "value":
            found, odd = draw.choice(values), draw.choice(ODD_VALUES)
            what = f"{found[0][:40]!r} at byte {found.start()} became {odd[:40]!r}"
            return content[: found.start()] + odd + content[found.end() :], what
        case "twice":
            lines.insert(line, lines[line])
            what = f"line {line + 1} twice"
        case "drop":
            del lines[line]
            what = f"line {line + 1} dropped"
        case "swap":
            lines[line], lines[other] = lines[other], lines[line]
            what = f"lines {line + 1} and {other + 1} swapped"
        case "line":
            lines[line] = (odd := draw.choice(ODD_VALUES)) + b"\n"
            what = f"line {line + 1} became {odd[:40]!r}"
    return b"".join(lines), what


def damage_folder(folder: Path, seed: int) -> str:
    """Damage one file below a folder; the answer says which and how."""
    draw = random.Random(seed)
    path = draw.choice(sorted(path for path in folder.rglob("*") if path.is_file()))
    name = path.relative_to(folder).as_posix()
    match draw.choice(["content"] * 12 + ["copy", "delete", "folder", "empty"]):
        case "content":
            content, what = damaged(path.read_bytes(), draw)
            path.write_bytes(content)
            return f"{name}: {what}"
        case "copy":
            shutil.copy(path, path.with_name(f"{path.stem} 2{path.suffix}"))
            return f"{name}: copied beside itself as another file, as file synchronisers do"
        case "delete":
            path.unlink()
            return f"{name}: deleted"
        case "folder":
            path.unlink()
            path.mkdir()
            return f"{name}: became a folder"
        case "empty":
            path.write_bytes(b"")
            return f"{name}: emptied"
