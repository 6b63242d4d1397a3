"""What a server tells of its model: to LibreTranslate's clients, and to the page."""

from collections.abc import Iterable, Sequence
from typing import Any

from babel import Locale

from anydepth.artifact.folder import LanguagePair
from anydepth.errors import UserError
from anydepth.infer.translator import Translator
from anydepth.serve.depths import Depths

NAMES = Locale("en").languages
EXAMPLES = 5


def language_name(code: str) -> str:
    return str(NAMES.get(code.replace("-", "_"), code))


def languages(pairs: Sequence[LanguagePair]) -> list[dict[str, Any]]:
    codes = dict.fromkeys(code for pair in pairs for code in (pair.source, pair.target))
    return [
        {
            "code": code,
            "name": language_name(code),
            "targets": [pair.target for pair in pairs if pair.source == code],
        }
        for code in codes
    ]


def frontend_settings(pair: LanguagePair, characters: int) -> dict[str, Any]:
    sides = {"source": pair.source, "target": pair.target}
    return {
        "charLimit": characters,
        "frontendTimeout": 500,
        "suggestions": False,
        "filesTranslation": False,
        "supportedFilesFormat": [],
        "language": {side: {"code": code, "name": language_name(code)} for side, code in sides.items()},
    }


def depths_of(depths: Depths, examples: Iterable[str]) -> dict[str, Any]:
    """For the page: what can be chosen in one language pair."""
    translator, timing = depths.translator, depths.timing
    on = translator.menu.measured_on
    return {
        "source": depths.pair.source,
        "target": depths.pair.target,
        "default": depths.default,
        "has_selector": _has_selector(translator),
        "has_budget": depths.why_no_budget is None,
        "times_from": timing.origin,
        "measured_on": on.get("test_set", on.get("reference", "")),
        "examples": list(examples),
        "depths": [
            {
                "name": entry.name,
                "encoder": len(entry.subnetwork.encoder),
                "decoder": len(entry.subnetwork.decoder),
                "bleu": entry.quality.get("bleu"),
                "chrf": entry.quality.get("chrf"),
                "ms": timing.milliseconds(entry.name),
                "parameters": translator.parameters(entry.name),
            }
            for entry in translator.menu
            if entry.name in timing.costs
        ],
    }


def _has_selector(translator: Translator) -> bool:
    try:
        return translator.selector is not None
    except UserError:  # one that is damaged: depths can still be named
        return False
