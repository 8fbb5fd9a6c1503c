"""Stories on request, questions about a story, and stories to be continued. Each maker returns [(question, full answer, short answer)]."""

from grammar import article
from stories import make_story
from tasks import ASKS


def _topic(rng, story):
    s = story.slots
    options = [
        "",
        "",
        "",
        f" about {article(s['H.kind'])}",
        f" about {article(s['H.noun'])}",
        f" about {article(s['H.kind'])} named {s['H']}",
        f" about {article(s['H.noun'])} called {s['H']}",
        f" about {s['H']}",
        f" about {story.theme}",
        f" about {article(s['H.noun'])} and {article(s['P.noun'])}",
        f" about {s['H']} and {s['P']}",
        f" about {article(s['H.noun'])}. It should be about {story.theme}",
    ]
    for slot in ("thing", "place", "food"):
        if s[slot] in story.text:
            text = {
                "thing": f"with {article(s['thing'])}",
                "place": f"that happens {s['at']}",
                "food": f"with {s['food']} in it",
            }[slot]
            options += [f" {text}", f" about {article(s['H.noun'])} {text}"]
    if "The moral of the story" in story.text:
        options += [" with a moral", " that has a moral"]
    return rng.choice(options)


def story(rng):
    short = rng.random() < 0.2
    tale = make_story(rng, 0.0 if short else None)
    ask, topic = rng.choice(ASKS["ask_story"]), _topic(rng, tale)
    while short and ask.count("{}") == 1:
        ask = rng.choice(ASKS["ask_story"])
    size = (
        rng.choice(["very short ", "short "])
        if short
        else rng.choice(["", "", "nice ", "good ", "little ", "bedtime ", "children's "])
    )
    ask = ask.format(topic) if ask.count("{}") == 1 else ask.format(size, topic)
    text = tale.text
    if rng.random() < 0.12:
        ask += rng.choice([" Give it a title.", " It should have a title.", " With a title, please."])
        text = f"{tale.title}\n\n{text}"
    out = [(ask, text, text)]
    while rng.random() < 0.25 and len(out) < 4:
        out.append(_about_story(rng, tale))
    if rng.random() < 0.04:
        another = make_story(rng, 0.3).text
        out.append(
            (
                rng.choice(
                    [
                        "Another one, please.",
                        "Tell me another story.",
                        "One more, please.",
                        "Again!",
                        "Another story!",
                    ]
                ),
                another,
                another,
            )
        )
    return out


def _about_story(rng, tale):
    s = tale.slots
    options = [
        (
            rng.choice(["Who is the story about?", "What is the name of the hero?", "Who is the hero of the story?"]),
            f"The story is about {s['H']}, {article(s['H.kind'])}.",
            s["H"],
        ),
        (f"Who is {s['H']}?", f"{s['H']} is {article(s['H.kind'])}.", article(s["H.kind"]).capitalize()),
    ]
    for role, who in (("P", s["P"]), ("E", s["E"]), ("S", s["S"])):
        if who in tale.text and s[role + ".kind"] in tale.text:
            options.append(
                (f"Who is {who}?", f"{who} is {article(s[role + '.kind'])}.", article(s[role + ".kind"]).capitalize())
            )
    if s["at"] in tale.text or s["place"] in tale.text:
        options.append(
            (
                rng.choice(["Where does the story happen?", f"Where does {s['H']} live?"]),
                f"{s['H']} lives near {s['place']}.",
                f"Near {s['place']}",
            )
        )
    options.append(
        (
            rng.choice(["What is the story about?", "What is it about?"]),
            f"It is about {tale.theme}.",
            tale.theme.capitalize(),
        )
    )
    return rng.choice(options)


def reading(rng):
    tale = make_story(rng, 0.0)
    part = tale.text.split("\n\n")[0] if rng.random() < 0.5 else tale.text
    tale.text = part
    ask, answer, short = _about_story(rng, tale)
    return [
        (
            rng.choice(["Read this: {}\n\n{}", "{}\n\nQuestion: {}", "Here is a story.\n\n{}\n\n{}"]).format(
                part, ask
            ),
            answer,
            short,
        )
    ]


def continue_story(rng):
    tale = make_story(rng)
    cut = [i for i in range(40, len(tale.text) // 2) if tale.text[i - 2 : i] in (". ", "! ")]
    if not cut:
        return story(rng)
    at = rng.choice(cut)
    rest = tale.text[at:].lstrip()
    return [
        (
            rng.choice(
                ["Continue this story: {}", "Go on: {}", "Finish this story: {}", "How does it go on? {}"]
            ).format(tale.text[:at].strip()),
            rest,
            rest,
        )
    ]
