"""What `roofline.py` is made of: idealised kernels, the machine's rates, the engine's stages, the model that compares
them."""
