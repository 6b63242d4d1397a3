"""Models for other machines and engines: export and its check, bench, doctor, jobs on Ray."""

# The modules of each extra of the package.
EXTRAS = {
    "ctranslate2": ("ctranslate2",),
    "onnx": ("onnxruntime", "onnx", "onnxscript"),
    "serve": (
        "fastapi",
        "uvicorn",
        "fastapi_offline",
        "sentencex",
        "prometheus_client",
        "babel",
        "pythonjsonlogger",
        "python_multipart",
    ),
    "bert": ("transformers",),
    "huggingface": ("datasets",),
    "ray": ("ray", "grpc"),
}
