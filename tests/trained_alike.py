"""Settings under which any number of processes has to learn the same, up to rounding."""

STEPS = 3  # in the warm-up, at its end, and after it
# Without dropout, whose numbers are a process's own. Without ReLU, which rounding may switch. By plain descent: Adam
# divides by the size of a gradient, and makes a large step of one that is nothing but rounding.
ALIKE = [
    "model.dropout=0",
    "model.activation=gelu",
    f"train.steps={STEPS}",
    "train.optimizer=nesterov",
    "train.learning_rate=0.1",
    "train.warmup=2",
    "train.schedule=inverse-sqrt",
    f"train.checkpoint_every={STEPS}",
    "train.average=1",
    f"train.valid_every={STEPS}",
    "train.valid_sentences=5",
    "train.log_every=1",
    "train.threads=1",
]
