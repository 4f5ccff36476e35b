"""The offline side, on Spark: streams made, prepared and profiled before a run. The engine never imports it."""
