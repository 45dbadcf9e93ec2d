# SPDX-License-Identifier: Apache-2.0
"""How far apart two colours are, for people who see all of them and for those who do not.

Seeing without one kind of cones: Machado, Oliveira, Fernandes 2009, severity 1, on linear RGB. Distances: CIEDE2000;
1 is about what can just be seen.
"""

import math

VISIONS = {
    "all cones": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanopia": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deuteranopia": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
    "tritanopia": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.303900)),
}


def times(matrix, vector):
    return [sum(a * b for a, b in zip(row, vector)) for row in matrix]


def linear(colour):
    """'#4477aa' -> linear RGB."""
    parts = [int(colour[i:i + 2], 16) / 255 for i in (1, 3, 5)]
    return [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]


def lab(rgb):
    """CIELAB of linear RGB, as seen under D65."""
    xyz = times(((0.4124564, 0.3575761, 0.1804375), (0.2126729, 0.7151522, 0.0721750), (0.0193339, 0.1191920, 0.9503041)), rgb)
    x, y, z = (value ** (1 / 3) if value > 216 / 24389 else (24389 / 27 * value + 16) / 116
               for value in (part / white for part, white in zip(xyz, (0.95047, 1, 1.08883))))
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


def ciede2000(first, second):
    (l1, a1, b1), (l2, a2, b2) = first, second

    def chroma_part(chroma):
        return math.sqrt(chroma ** 7 / (chroma ** 7 + 25 ** 7))
    grey = 1.5 - 0.5 * chroma_part((math.hypot(a1, b1) + math.hypot(a2, b2)) / 2)
    c1, c2 = math.hypot(a1 * grey, b1), math.hypot(a2 * grey, b2)
    h1, h2 = (math.degrees(math.atan2(b, a * grey)) % 360 for a, b in ((a1, b1), (a2, b2)))
    turn = (h2 - h1 + 180) % 360 - 180 if c1 * c2 else 0
    hue = (h1 + turn / 2) % 360 if c1 * c2 else h1 + h2
    light, chroma = (l1 + l2) / 2, (c1 + c2) / 2

    def cosine(factor, offset):
        return math.cos(math.radians(factor * hue + offset))
    weight = 1 - 0.17 * cosine(1, -30) + 0.24 * cosine(2, 0) + 0.32 * cosine(3, 6) - 0.2 * cosine(4, -63)
    d_light = (l2 - l1) / (1 + 0.015 * (light - 50) ** 2 / math.sqrt(20 + (light - 50) ** 2))
    d_chroma = (c2 - c1) / (1 + 0.045 * chroma)
    d_hue = 2 * math.sqrt(c1 * c2) * math.sin(math.radians(turn / 2)) / (1 + 0.015 * chroma * weight)
    rotation = -2 * chroma_part(chroma) * math.sin(math.radians(60 * math.exp(-((hue - 275) / 25) ** 2)))
    return math.sqrt(d_light ** 2 + d_chroma ** 2 + d_hue ** 2 + rotation * d_chroma * d_hue)


def distance(first, second, vision):
    seen = [[min(1, max(0, part)) for part in times(VISIONS[vision], linear(colour))] for colour in (first, second)]
    return ciede2000(*map(lab, seen))


def nearest(colours):
    """Of {name: '#rrggbb'} the two that are hardest to tell apart: (distance, vision, name, name)."""
    names = sorted(colours)
    return min((distance(colours[a], colours[b], vision), vision, a, b)
               for i, a in enumerate(names) for b in names[i + 1:] for vision in VISIONS)
