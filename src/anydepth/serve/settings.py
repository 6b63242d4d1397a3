"""How a server is set up."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Limits:
    """What one request may ask for, and how much may wait."""

    characters: int = 20_000  # in all texts of a request
    texts: int = 200  # in a list
    sentence: int = 128  # sub-words of a sentence; a longer one is divided, for models know few of those
    alternatives: int = 5
    body: int = 1 << 20  # bytes
    seconds: float = 60.0  # until a request is given up
    sending: float = 10.0  # seconds that a client may take to send one
    waiting: int = 2_000  # sentences in the queue, beyond which new requests are turned away


@dataclass(frozen=True)
class Settings:
    batch_size: int = 32
    beam: int = 1
    depth: str | None = None  # for requests that do not name one; None is the model's default
    budget: float | None = None  # seconds per sentence, in the same way
    limits: Limits = field(default_factory=Limits)
    api_keys: frozenset[str] = frozenset()
    origins: tuple[str, ...] = ()  # of other sites whose pages may call it (CORS)
