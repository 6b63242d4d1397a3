"""Figures for Prometheus. No label comes from what a client sends, but for routes and depths there are."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

SECONDS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128)


class Metrics:
    def __init__(self) -> None:
        registry = self._registry = CollectorRegistry()
        self.requests = Counter("anydepth_requests", "Requests answered.", ["route", "status"], registry=registry)
        self.seconds = Histogram(
            "anydepth_request_seconds", "Time to answer.", ["route"], buckets=SECONDS, registry=registry
        )
        self.texts = Counter("anydepth_texts", "Sentences or texts run, by depth.", ["depth"], registry=registry)
        self.characters = Counter("anydepth_characters", "Characters received.", registry=registry)
        self.cancelled = Counter("anydepth_cancelled", "Requests whose client hung up.", registry=registry)
        self.waiting = Gauge("anydepth_waiting", "Sentences in the queue.", registry=registry)
        self.batch_size = Histogram("anydepth_batch_size", "Sentences run together.", buckets=SIZES, registry=registry)

    def text(self) -> bytes:
        return generate_latest(self._registry)
