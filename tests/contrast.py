"""WCAG 2.2's contrast, which colours of figures and pages must reach."""


def contrast(first: str, second: str) -> float:
    """Of two #rrggbb colours, 1 to 21."""

    def luminance(color: str) -> float:
        channels = (int(color[at : at + 2], 16) / 255 for at in (1, 3, 5))
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    light, dark = sorted((luminance(first), luminance(second)), reverse=True)
    return (light + 0.05) / (dark + 0.05)
