"""What `roofline.py` is made of.

There are idealised kernels, the rates of the machine, the stages of the engine, and the model that compares them.
"""
