"""Figures 5 to 14 of WSJ: what is measured, how, how it is drawn, and which of the paper's sentences hold."""
