"""Texts on which tokenizers are compared: written ones, and random ones over all characters."""

from __future__ import annotations

import random
import unicodedata

WRITTEN = [
    "Hello, world!",
    "  two  spaces ",
    "don't stop I'll we've",
    "1234567890 3.14 1,000",
    "a\tb\nc\r\nd",
    "naïve café Ångström",
    "Привет, мир! Ёжик",
    "日本語のテキスト",
    "你好，世界。缓存",
    "مرحبا بالعالم",
    "שלום עולם",
    "हिन्दी में पाठ",
    "ไทยไม่มีช่องว่าง",
    "한국어 텍스트",
    "👩\u200d👩\u200d👧\u200d👦 🏳️\u200d🌈 🇳🇴 ☕️",
    "é vs é",
    "\u200b\u200d\ufeff",
    "x = [i**2 for i in range(10)]  # list",
    "<div class='a'>&amp;</div>",
    "C:\\path\\file",
    "\x00\x07\x1b[0m",
    "....,,,;;;!!!???",
    "____----====",
    "١٢٣ ४५६ ①②",
    "\n\n\n   \n\t",
    "",
    "ＡＢＣ ｆｕｌｌ",
    "Zalgo z̷a̸l̶g̵o",
]


def random_texts(count: int) -> list[str]:
    """Short strings over all assigned characters, and over a mix of scripts and spaces."""
    generator = random.Random(7)
    texts = []
    while len(texts) < count:
        pool = [chr(generator.randrange(0x20, 0x2FFFF)) for _ in range(generator.randrange(1, 30))]
        text = "".join(c for c in pool if unicodedata.category(c) not in ("Cs", "Cn"))
        bits = ["a", "é", " ", "  ", "7", "日", "\n", "'s", "👍", text[:1]]
        mixed = "".join(generator.choice(bits) for _ in range(20))
        texts += [text, mixed]
    return texts
