"""What runs a model: torch, native, CTranslate2 and ONNX. Nothing is imported here."""
