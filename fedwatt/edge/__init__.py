"""The trained model in the vehicle: export, streaming prediction, error bars, trips and range.

`predictor`, `energy_model`, `clock`, `calibration`, `trips`, `reading` and `card` need numpy
and onnxruntime only.
"""
