"""The trained model in the vehicle: export, streaming prediction, error bars, trips and range.

`predictor`, `energy_model`, `clock`, `calibration`, `error_bars`, `trips`, `route`, `range` and
`card` need numpy and onnxruntime only.
"""
