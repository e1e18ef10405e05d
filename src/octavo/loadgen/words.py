"""Word lists and sentence patterns: plain English made without shipping anyone's text."""

from __future__ import annotations

import random
from collections.abc import Iterator

NOUNS = """
time year people way day man thing woman life child world school state family student group country problem hand part
place case week company system program question work government number night point home water room mother area money
story fact month lot right study book eye job word business issue side kind head house service friend father power hour
game line end member law car city community name president team minute idea body information back parent face others
level office door health person art war history party result change morning reason research girl guy moment air teacher
force education river garden mountain letter window bridge village market engine signal machine memory library season
harbour kitchen journey answer paper station field weather song harvest
"""

VERBS = """
makes takes sees finds gives tells works calls tries needs feels becomes leaves puts means keeps lets begins helps shows
hears plays runs moves likes lives believes holds brings happens writes provides sits stands loses pays meets includes
continues sets learns changes leads understands watches follows stops creates speaks reads allows adds spends grows
opens walks wins offers remembers considers appears buys waits serves sends expects builds stays falls cuts reaches
remains suggests raises passes sells requires
"""

ADJECTIVES = """
good new first last long great little own other old right big high different small large next early young important few
public bad same able simple quiet bright careful distant early easy final free general happy heavy honest human local
major modern narrow natural open patient plain proper rapid ready recent serious sharp slow soft special steady strong
sudden warm wide wooden
"""

ADVERBS = (
    "often rarely slowly quickly usually never always sometimes quietly carefully suddenly nearly simply finally together again"
)

LINKS = "and but while because although so when before after until as since"

PREPOSITIONS = "in on at near under over behind beside through across along against between among beyond within"


def sentences(rng: random.Random) -> Iterator[str]:
    """An endless run of sentences, the same for the same generator state."""
    nouns, verbs, adjectives = NOUNS.split(), VERBS.split(), ADJECTIVES.split()
    adverbs, links, prepositions = ADVERBS.split(), LINKS.split(), PREPOSITIONS.split()

    def noun_phrase() -> str:
        article = rng.choice(("the", "the", "a", "this", "every", "our"))
        return (
            f"{article} {rng.choice(adjectives)} {rng.choice(nouns)}"
            if rng.random() < 0.5
            else f"{article} {rng.choice(nouns)}"
        )

    def clause() -> str:
        words = [noun_phrase(), rng.choice(adverbs) if rng.random() < 0.3 else "", rng.choice(verbs), noun_phrase()]
        if rng.random() < 0.5:
            words += [rng.choice(prepositions), noun_phrase()]
        return " ".join(word for word in words if word)

    while True:
        text = clause()
        for _ in range(rng.choice((0, 0, 1, 1, 2))):
            text += f", {rng.choice(links)} {clause()}"
        yield text[0].upper() + text[1:] + rng.choice((".", ".", ".", "?"))
