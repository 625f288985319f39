"""What every server here offers: ../fixtures.json, as the revision knows it."""

import json
import pathlib
import re


class Fixtures:
    def __init__(self, revision):
        path = pathlib.Path(__file__).parent.parent / "fixtures.json"
        everything = json.loads(path.read_text())
        known = lambda entries: [entry for entry in entries if entry["since"] <= revision]
        self.tools = {entry["tool"]["name"]: entry for entry in known(everything["tools"])}
        self.prompts = {entry["prompt"]["name"]: entry for entry in known(everything["prompts"])}
        self.resources = {entry["resource"]["uri"]: entry for entry in everything["resources"]}
        self.template = everything["template"]
        self.completion = everything["completion"]

    def read(self, uri):
        """What a resource of this URI holds, or nothing."""
        if uri in self.resources:
            return self.resources[uri]["contents"]
        prefix, suffix = self.template["prefix"], self.template["suffix"]
        if not (uri.startswith(prefix) and uri.endswith(suffix)):
            return None
        contents = self.template["contents"]
        # Its text is JSON, whose braces are no words to fill in.
        return {"uri": uri, **contents, "text": contents["text"].replace("{id}", uri[len(prefix) : -len(suffix)])}


def fill(value, words):
    """A value with every `{name}` in its texts filled in."""
    if isinstance(value, str):
        return re.sub(r"\{(\w+)\}", lambda found: str(words.get(found[1], found[0])), value)
    if isinstance(value, list):
        return [fill(item, words) for item in value]
    if isinstance(value, dict):
        return {key: fill(item, words) for key, item in value.items()}
    return value
