"""What runs sub-networks on token ids: PyTorch, the native engine, CTranslate2, ONNX."""
